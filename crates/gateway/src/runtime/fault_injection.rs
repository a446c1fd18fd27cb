//! Promises that a test has this program break, to show that whoever tries them notices.
//!
//! Named by the variable `PETASOS_BREAKS`. Builds without debug assertions know nothing of it.

pub use petasos_runtime::fault_injection::Planted;
pub(crate) use petasos_runtime::fault_injection::planted;

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A copy says nothing of being one.
    Marks,
    /// What the store refused is acknowledged.
    Refusals,
}

#[cfg(debug_assertions)]
pub(crate) fn breaks(what: Broken) -> bool {
    static WISHES: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let wishes = WISHES.get_or_init(|| std::env::var("PETASOS_BREAKS").unwrap_or_default());
    wishes.split(',').any(|wish| wish == format!("{what:?}"))
}

#[cfg(not(debug_assertions))]
pub(crate) const fn breaks(_what: Broken) -> bool {
    false
}

/// For a planted bug: who wrote last, in whichever chat.
#[cfg(feature = "simulation")]
pub(crate) fn wrote_last(inbound: &petasos_core::Inbound) {
    super::simulation::set_current_chat(inbound);
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn wrote_last(_inbound: &petasos_core::Inbound) {}

/// Where a planted bug sends every answer.
#[cfg(feature = "simulation")]
pub(crate) fn current_chat() -> Option<petasos_core::Inbound> {
    planted(Planted::CurrentChat).then(super::simulation::current_chat).flatten()
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn current_chat() -> Option<petasos_core::Inbound> {
    None
}
