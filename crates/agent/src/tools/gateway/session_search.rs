//! The `session_search` tool: searches earlier conversations.

use petasos_core::ids::RowId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::GatewayCall;
use crate::tools::registry::arguments::{Count, required};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const HITS: usize = 10;
const MAX_HITS: usize = 50;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "session_search",
        description: "Searches the earlier conversations of this user with you.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::None,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::gateway(parse_call),
    }
}

#[derive(Deserialize, JsonSchema)]
struct SessionSearchArguments {
    /// Words to search for; all of them must occur
    query: Option<String>,
    /// Number of results, default 10
    #[schemars(range(max = MAX_HITS))]
    limit: Option<Count>,
    /// Instead of a query: the row of a result, to read the messages around it
    around: Option<i64>,
}

fn parse_call(arguments: SessionSearchArguments) -> Result<GatewayCall, String> {
    if let Some(row) = arguments.around {
        return Ok(GatewayCall::Around { row: RowId(row) });
    }
    let query = required(&arguments.query, "query")?.trim().to_owned();
    if query.is_empty() {
        return Err("The query is empty.".to_owned());
    }
    Ok(GatewayCall::Search {
        query,
        limit: Count::within(arguments.limit.as_ref(), "limit", HITS, MAX_HITS)?,
    })
}
