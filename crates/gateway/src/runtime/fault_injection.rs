//! Fault injection: guarantees that tests disable and bugs that simulations plant, to prove that the tests detect them.
//!
//! The variable `PETASOS_BREAKS` names the disabled guarantees; only with debug assertions.

pub use petasos_runtime::fault_injection::PlantedBug;
pub(crate) use petasos_runtime::fault_injection::planted;

/// A guarantee that can be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// A possible duplicate is marked as one.
    Marks,
    /// A message that the store refused is not acknowledged.
    Refusals,
}

#[cfg(debug_assertions)]
pub(crate) fn is_disabled(what: Guarantee) -> bool {
    static DISABLED: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let disabled = DISABLED.get_or_init(|| std::env::var("PETASOS_BREAKS").unwrap_or_default());
    disabled.split(',').any(|name| name == format!("{what:?}"))
}

#[cfg(not(debug_assertions))]
pub(crate) const fn is_disabled(_what: Guarantee) -> bool {
    false
}

/// For a planted bug: records the last inbound message.
#[cfg(feature = "simulation")]
pub(crate) fn record_inbound(inbound: &petasos_core::Inbound) {
    super::simulation::set_current_chat(inbound);
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn record_inbound(_inbound: &petasos_core::Inbound) {}

/// For a planted bug: the message whose chat gets all answers.
#[cfg(feature = "simulation")]
pub(crate) fn current_chat() -> Option<petasos_core::Inbound> {
    planted(PlantedBug::CurrentChat).then(super::simulation::current_chat).flatten()
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn current_chat() -> Option<petasos_core::Inbound> {
    None
}
