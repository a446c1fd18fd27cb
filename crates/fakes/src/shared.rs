//! What a fake's handle and its server share: the world under its lock, the rules, the bell and who watches.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Notify;

use crate::rules::Rules;
use crate::watched::Watched;

type Observer<C> = Arc<dyn Fn(&C) + Send + Sync>;

/// `W` is the world, `C` what people see change in it; `F` and `P` are those of the rules.
pub(crate) struct Shared<W, C, F, P> {
    pub(crate) world: Watched<W>,
    pub(crate) rules: Rules<F, P>,
    /// Rings when a waiting poll or an open socket should look again.
    pub(crate) bell: Notify,
    observers: RwLock<Vec<Observer<C>>>,
}

impl<W: fmt::Debug, C, F, P> fmt::Debug for Shared<W, C, F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("world", &self.world).finish_non_exhaustive()
    }
}

impl<W, C, F, P> Shared<W, C, F, P> {
    pub(crate) fn new(world: W) -> Self {
        let observers = RwLock::default();
        Self { world: Watched::new(world), rules: Rules::new(), bell: Notify::new(), observers }
    }

    /// A change that waiting polls and open sockets must hear of.
    pub(crate) fn ring<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        let done = self.world.change(act);
        self.bell.notify_waiters();
        done
    }

    pub(crate) fn observe(&self, observer: impl Fn(&C) + Send + Sync + 'static) {
        self.observers.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(observer));
    }

    /// Outside the lock, so that an observer may push the next message.
    pub(crate) fn announce(&self, change: &C) {
        let observers = self.observers.read().unwrap_or_else(PoisonError::into_inner).clone();
        observers.iter().for_each(|observer| observer(change));
    }
}
