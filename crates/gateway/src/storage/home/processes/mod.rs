//! Processes: who serves this home, when it was started, which bot it uses.

pub mod boots;
pub mod bot_lock;
pub mod pid;
pub mod process;
pub mod starts;
