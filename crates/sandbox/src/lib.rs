//! Confines a program and everything it starts with what the kernel offers to an ordinary user.
//!
//! The gateway describes the confinement as a [`Policy`] and starts its own program as the launcher
//! ([`launcher::run`]), which applies the policy to itself while it has one thread, and then becomes the
//! command. Nothing is undone later: the restrictions are inherited by every descendant and cannot be widened.
//!
//! | layer | file | restricts |
//! |---|---|---|
//! | Landlock | `filesystem.rs` | files, devices, signals, abstract sockets, TCP ports |
//! | seccomp | `syscalls/` | sockets, system calls that reach other processes or the kernel's rare parts |
//! | namespaces | `namespaces/` | processes, network and mounts that can be seen; owner and mode of files |
//! | privileges | `privileges.rs` | capabilities, set-user-ID programs, inherited descriptors, resource limits |
//!
//! [`Support`] says which layers this kernel applied in a trial. A policy names the layers it relies on; if one
//! of them fails, the command does not run.

mod error;
mod filesystem;
pub mod launcher;
mod namespaces;
pub mod paths;
mod policy;
mod privileges;
mod support;
mod syscalls;

pub use error::Error;
pub use policy::{Limits, Network, Policy};
pub use support::{Gap, Support};
