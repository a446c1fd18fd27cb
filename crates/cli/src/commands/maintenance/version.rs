//! `petasos version`.

use std::process::ExitCode;

use serde_json::json;

use crate::failure::Failure;
use crate::print;

pub fn version(as_json: bool) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let schema = petasos_store::SCHEMA;
    if as_json {
        print::json(&json!({ "version": version, "build": build, "target": target, "schema": schema }))?;
    } else {
        crate::print::outln!("petasos {version} ({target}, {build}, database schema {schema})");
    }
    Ok(ExitCode::SUCCESS)
}
