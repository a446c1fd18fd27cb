//! curl, Python and git through the proxy, with and without TLS.

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use petasos_egress::{HostDecision, environment};

use crate::support::{TestProxy, is_installed, origin, run, text};

/// Serves a folder with TLS, and prints its port.
const TLS_SERVER: &str = r#"
import functools, http.server, ssl, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// Ends with the test.
struct Server {
    child: Child,
    at: SocketAddr,
    certificate: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[track_caller]
fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}

/// A web server for `secure.example.org` with a file and a git repository.
fn tls_server(folder: &Path) -> Server {
    let key = folder.join("key.pem");
    let certificate = folder.join("certificate.pem");
    succeed(
        Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=secure.example.org",
            ])
            .args(["-addext", "subjectAltName=DNS:secure.example.org", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate),
    );
    let public = folder.join("public");
    std::fs::create_dir(&public).unwrap();
    std::fs::write(public.join("file.txt"), "over tls").unwrap();
    let repository = public.join("repository.git");
    let work = folder.join("work");
    let git = |arguments: &[&str], at: &Path| {
        let identity =
            ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"];
        succeed(Command::new("git").args(identity).args(arguments).current_dir(at));
    };
    std::fs::create_dir(&work).unwrap();
    git(&["init", "-q"], &work);
    git(&["commit", "-q", "--allow-empty", "-m", "first"], &work);
    git(&["clone", "-q", "--bare", ".", &repository.to_string_lossy()], &work);
    git(&["update-server-info"], &repository);
    let mut child = Command::new("python3")
        .args(["-c", TLS_SERVER])
        .args([&public, &certificate, &key])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    Server { child, at: SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap())), certificate }
}

fn with_proxy(mut command: Command, url: &str) -> Command {
    command.envs(environment::proxy_variables(url));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_use_the_proxy_of_their_environment() {
    if !["curl", "python3", "git", "openssl"].into_iter().all(is_installed) {
        return;
    }
    let proxy = TestProxy::start().await;
    let folder = proxy.folder().to_owned();
    let server = tokio::task::spawn_blocking(move || tls_server(&folder)).await.unwrap();
    proxy.network.name("secure.example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:443", server.at);
    proxy.approver.decide("secure.example.org", HostDecision::Once);
    let url = proxy.url("s");

    let mut curl = Command::new("curl");
    curl.arg("-sS").arg("--cacert").arg(&server.certificate).arg("https://secure.example.org/file.txt");
    let output = run(with_proxy(curl, &url)).await;
    assert_eq!(text(&output.stdout), "over tls", "curl: {}", text(&output.stderr));

    let mut python = Command::new("python3");
    let script = "import urllib.request; print(urllib.request.urlopen('https://secure.example.org/file.txt').read().decode())";
    python.args(["-c", script]).env("SSL_CERT_FILE", &server.certificate);
    let output = run(with_proxy(python, &url)).await;
    assert_eq!(text(&output.stdout).trim(), "over tls", "python3: {}", text(&output.stderr));

    let mut git = Command::new("git");
    git.args(["clone", "-q", "https://secure.example.org/repository.git"])
        .current_dir(proxy.folder())
        .env("GIT_SSL_CAINFO", &server.certificate);
    let output = run(with_proxy(git, &url)).await;
    assert!(output.status.success(), "git: {}", text(&output.stderr));
    assert!(proxy.folder().join("repository/.git").is_dir());

    assert_eq!(proxy.approver.asked(), ["secure.example.org"], "one question for all of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_and_socks_are_served() {
    if !is_installed("curl") {
        return;
    }
    let proxy = TestProxy::allowing(&["example.org", "example.org:8080"]).await;
    proxy.network.name("example.org", &[&["93.184.216.34"]]);
    let (server, _reports) = origin().await;
    for port in [80, 8080] {
        proxy.network.server(&format!("93.184.216.34:{port}"), server);
    }
    let credential = proxy.credential("s");
    let socks = format!("socks5h://{}:{}@{}", credential.name, credential.token.expose(), proxy.direct);
    for (option, proxy_url, address) in [
        ("--proxy", proxy.url("s"), "http://example.org/"),
        ("--proxy", proxy.url("s"), "http://example.org:8080/a"),
        ("--proxy", socks.clone(), "http://example.org/"),
        ("--proxy", socks.replace("socks5h", "socks5"), "http://93.184.216.34/"),
    ] {
        if address.contains("93.") {
            proxy.approver.decide("93.184.216.34", HostDecision::Session);
        }
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", option, &proxy_url, address]);
        let output = run(curl).await;
        assert_eq!(text(&output.stdout), "hello", "{proxy_url} {address}: {}", text(&output.stderr));
    }
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "--max-time",
        "30",
        "--proxytunnel",
        "--proxy",
        &proxy.url("s"),
        "http://example.org:8080/",
    ]);
    assert_eq!(text(&run(curl).await.stdout), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_programs_print_the_reason() {
    if !["curl", "git"].into_iter().all(is_installed) {
        return;
    }
    let proxy = TestProxy::start().await;
    let mut curl = Command::new("curl");
    curl.args(["-sS", "http://denied.example.org/"]);
    let output = run(with_proxy(curl, &proxy.url("s"))).await;
    assert!(
        text(&output.stdout).contains("the user denied access to denied.example.org:80"),
        "{}",
        text(&output.stdout)
    );
    let mut git = Command::new("git");
    git.args(["ls-remote", "https://denied.example.org/x.git"]);
    let output = run(with_proxy(git, &proxy.url("s"))).await;
    assert!(text(&output.stderr).contains("403"), "{}", text(&output.stderr));
}
