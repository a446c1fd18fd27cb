//! `session_search`: what was said in earlier conversations.

use petasos_core::ids::RowId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Errand;
use crate::tools::arguments::{Count, needed};
use crate::tools::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const HITS: usize = 10;
const MOST_HITS: usize = 50;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "session_search",
        description: "Searches the earlier conversations of this user with you.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::None,
        reach: Reach::Turn,
        runner: Runner::errand(read),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// Words that were said; all of them must occur
    query: Option<String>,
    /// Number of results, default 10
    #[schemars(range(max = MOST_HITS))]
    limit: Option<Count>,
    /// Instead of a query: the row of a result, to read what was said around it
    around: Option<i64>,
}

fn read(arguments: Arguments) -> Result<Errand, String> {
    if let Some(row) = arguments.around {
        return Ok(Errand::Around { row: RowId(row) });
    }
    let query = needed(&arguments.query, "query")?.trim().to_owned();
    if query.is_empty() {
        return Err("The query is empty.".to_owned());
    }
    Ok(Errand::Search { query, limit: Count::within(arguments.limit.as_ref(), "limit", HITS, MOST_HITS)? })
}
