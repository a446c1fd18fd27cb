//! `?profile=`: which gateway is meant, where one machine has several. We are one of them and speak for no other.

use std::path::Path;

use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use petasos_gateway::Handle;
use serde::Deserialize;

use crate::error::ApiError;

/// The name of a home that is nobody's profile.
const DEFAULT: &str = "default";
/// Of a name that we do not know, this much is repeated.
const SHOWN: usize = 64;

#[derive(Debug, Deserialize)]
struct Wanted {
    profile: Option<String>,
}

/// Nobody else was meant.
#[derive(Debug)]
pub(crate) struct OwnProfile;

impl FromRequestParts<Handle> for OwnProfile {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, handle: &Handle) -> Result<Self, ApiError> {
        let Query(wanted) = Query::<Wanted>::try_from_uri(&parts.uri)
            .map_err(|rejection| ApiError::detail(StatusCode::BAD_REQUEST, rejection.body_text()))?;
        let Some(wanted) = wanted.profile else { return Ok(Self) };
        let wanted = wanted.trim();
        if wanted.is_empty() || wanted == name_of(handle.home()) {
            return Ok(Self);
        }
        let shown: String = wanted.chars().take(SHOWN).collect();
        Err(ApiError::detail(
            StatusCode::NOT_FOUND,
            format!("Profile '{shown}' is not served by this gateway"),
        ))
    }
}

/// A named profile lives in `profiles/<name>`.
fn name_of(home: &Path) -> &str {
    let folder = home.parent().and_then(Path::file_name);
    let name = home.file_name().filter(|_| folder.is_some_and(|folder| folder == "profiles"));
    name.and_then(|name| name.to_str()).unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_below_profiles_has_the_name_of_its_folder() {
        for (home, want) in [
            ("/home/u/.hermes", "default"),
            ("/home/u/.hermes/profiles/work", "work"),
            ("/home/u/.hermes/profiles", "default"),
            ("/", "default"),
            ("", "default"),
        ] {
            assert_eq!(name_of(Path::new(home)), want, "{home}");
        }
    }
}
