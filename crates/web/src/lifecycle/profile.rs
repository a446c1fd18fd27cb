//! `?profile=`: names one of several gateways on a machine. Requests for another profile are rejected.

use std::path::Path;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use petasos_gateway::Handle;
use serde::Deserialize;

use crate::error::ApiError;

/// The profile of a home outside `profiles/`.
const DEFAULT_PROFILE: &str = "default";
/// An unknown name is truncated to this length in the error.
const MAX_NAME_CHARS: usize = 64;

#[derive(Debug, Deserialize)]
struct ProfileQuery {
    profile: Option<String>,
}

/// The request is for this gateway's profile.
#[derive(Debug)]
pub(crate) struct OwnProfile;

impl FromRequestParts<Handle> for OwnProfile {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, handle: &Handle) -> Result<Self, ApiError> {
        let Query(requested) = Query::<ProfileQuery>::try_from_uri(&parts.uri)
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()).into_detail())?;
        let Some(requested) = requested.profile else { return Ok(Self) };
        let requested = requested.trim();
        if requested.is_empty() || requested == profile_of(handle.home()) {
            return Ok(Self);
        }
        let shown: String = requested.chars().take(MAX_NAME_CHARS).collect();
        Err(ApiError::not_found(format!("Profile '{shown}' is not served by this gateway")).into_detail())
    }
}

/// The profile name of a home: `profiles/<name>`, or the default.
fn profile_of(home: &Path) -> &str {
    let folder = home.parent().and_then(Path::file_name);
    let name = home.file_name().filter(|_| folder.is_some_and(|folder| folder == "profiles"));
    name.and_then(|name| name.to_str()).unwrap_or(DEFAULT_PROFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_profile_name_from_home_folder() {
        for (home, want) in [
            ("/home/u/.hermes", "default"),
            ("/home/u/.hermes/profiles/work", "work"),
            ("/home/u/.hermes/profiles", "default"),
            ("/", "default"),
            ("", "default"),
        ] {
            assert_eq!(profile_of(Path::new(home)), want, "{home}");
        }
    }
}
