//! The environment variables that make programs use the proxy.

/// Requests to the sandbox's own loopback interface do not go through the proxy.
const LOCAL: &str = "localhost,127.0.0.1,::1";

/// Variables for a proxy at `url`. `ALL_PROXY` is an HTTP proxy, too: several libraries fail at start if it names SOCKS and their
/// SOCKS support is not installed.
pub fn proxy_variables(url: &str) -> Vec<(&'static str, String)> {
    let proxy = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let local = ["no_proxy", "NO_PROXY"];
    let mut all: Vec<_> = proxy.into_iter().map(|name| (name, url.to_owned())).collect();
    all.extend(local.into_iter().map(|name| (name, LOCAL.to_owned())));
    // Node reads the other variables only if this one is set.
    all.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    all
}
