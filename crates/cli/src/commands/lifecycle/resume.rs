//! `petasos resume`: ends a drain.

use std::process::ExitCode;

use petasos_gateway::home::drain;
use serde_json::json;

use super::wait::wait_briefly;
use crate::commands::Context;
use crate::failure::{Failure, WRITABLE_ADVICE};
use crate::observe::Observation;
use crate::print;
use crate::print::{WARNING, errln, outln, styled};

pub async fn resume(context: &Context) -> Result<ExitCode, Failure> {
    let was_draining = drain::clear(context.home.path()).map_err(|error| {
        Failure::new(format!("the drain marker cannot be removed: {error}")).next(WRITABLE_ADVICE)
    })?;
    let (seen, open) =
        wait_briefly(&context.home, |lifecycle| !lifecycle.is_draining() || lifecycle.is_shutting_down())
            .await;
    let state = seen.status().map(|lifecycle| lifecycle.state.clone());
    if context.json {
        print::json(&json!({
            "was_draining": was_draining, "gateway_running": seen != Observation::NotRunning, "gateway_state": state,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !was_draining {
        outln!("No drain was requested");
    }
    match &seen {
        Observation::NotRunning if was_draining => {
            outln!("The drain is over; no gateway is running (petasos run starts one)")
        }
        Observation::Responding(_, lifecycle) if lifecycle.is_shutting_down() => {
            errln!("{} the gateway is stopping; that cannot be cancelled", styled(WARNING, "warning:"));
        }
        Observation::Responding(_, lifecycle) if open && was_draining => {
            outln!("Turns start again; the gateway is {}", lifecycle.state)
        }
        Observation::NotRunning => {}
        Observation::Responding(..) if open => {}
        Observation::Responding(..) | Observation::Unresponsive(_) => {
            let message = "the gateway has not confirmed within 2 s that it accepts new turns; petasos status shows its state";
            errln!("{} {message}", styled(WARNING, "warning:"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
