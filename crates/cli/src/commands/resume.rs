//! `petasos resume`: takes a drain back.

use std::process::ExitCode;

use petasos_gateway::home::drain;
use serde_json::json;

use super::Context;
use super::wait::soon;
use crate::failure::{Failure, WRITABLE};
use crate::life::Sight;
use crate::print;
use crate::print::{ODD, say, styled, warn_of};

pub async fn resume(context: &Context) -> Result<ExitCode, Failure> {
    let was_draining = drain::clear(context.home.path()).map_err(|error| {
        Failure::new(format!("the drain marker cannot be removed: {error}")).next(WRITABLE)
    })?;
    let (sight, open) = soon(&context.home, |life| !life.is_draining() || life.is_leaving()).await;
    let state = sight.life().map(|life| life.state.clone());
    if context.json {
        print::json(&json!({
            "was_draining": was_draining, "gateway_running": sight != Sight::Nobody, "gateway_state": state,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !was_draining {
        say!("nobody had asked for a drain");
    }
    match &sight {
        Sight::Nobody if was_draining => say!("the drain is over; no gateway runs (petasos run starts one)"),
        Sight::Life(_, life) if life.is_leaving() => {
            warn_of!("{} the gateway is stopping; that cannot be taken back", styled(ODD, "warning:"));
        }
        Sight::Life(_, life) if open && was_draining => {
            say!("turns start again: the gateway is {}", life.state)
        }
        Sight::Nobody => {}
        Sight::Life(..) if open => {}
        Sight::Life(..) | Sight::Silent(_) => {
            let what =
                "the gateway has not said within 2 s that it takes new turns; petasos status shows its state";
            warn_of!("{} {what}", styled(ODD, "warning:"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
