//! Reduces a failing case to fewer messages, faults and crashes, while the same guarantee breaks.

use std::path::Path;

use crate::case::{Case, Plan};
use crate::{Broken, Bug, Story, run};

/// Limit of smaller cases that are tried.
const TRIES: u32 = 120;

pub fn shrink(broken: Box<Broken>, bug: Option<Bug>, folder: &Path) -> Box<Broken> {
    let mut best = broken;
    let mut tries = 0;
    loop {
        let mut smaller = None;
        for case in candidates(&best.case) {
            tries += 1;
            if tries > TRIES {
                return best;
            }
            if let Err(found) = run(&case, bug, folder, Story::Untold)
                && found.violation.promise == best.violation.promise
            {
                smaller = Some(found);
                break;
            }
        }
        match smaller {
            Some(found) => best = found,
            None => return best,
        }
    }
}

/// The largest reductions first.
fn candidates(case: &Case) -> Vec<Case> {
    let plan = Plan::of(case);
    let messages = u32::try_from(plan.messages).unwrap_or(u32::MAX);
    let less = |count: u32| [0, count / 2, count.saturating_sub(1)].into_iter().filter(move |it| *it < count);
    let mut all = Vec::new();
    all.extend(less(plan.crashes).map(|crashes| Case { crashes: Some(crashes), ..*case }));
    all.extend(less(plan.faults).map(|faults| Case { faults: Some(faults), ..*case }));
    all.extend(less(messages).map(|messages| Case { messages: Some(messages), ..*case }));
    all
}
