//! `petasos stop`: asks, and waits until the home is free.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::Context;
use crate::client::Client;
use crate::failure::Failure;
use crate::{lock, print};

/// A stop waits for sends that are under way; no longer than this.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

pub(crate) async fn stop(context: &Context) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let path = context.home.lock_file();
    let pid = lock::holder(&path).map(|record| record.pid);
    let _: Value = client.post("/api/shutdown", &json!({})).await?;
    let free = async {
        while lock::holder(&path).is_some() {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(PATIENCE, free).await.is_err() {
        let failure = Failure::new("the gateway was asked to stop and has not stopped yet");
        return Err(failure.next("petasos status shows what it waits for"));
    }
    if context.json {
        print::json(&json!({ "stopped": true, "pid": pid }))?;
    } else {
        crate::print::say!("stopped{}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default());
    }
    Ok(ExitCode::SUCCESS)
}
