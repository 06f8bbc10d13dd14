//! The receivers of traces from PyPI, as processes: oteltap takes OTLP over HTTP and writes each span as a line of
//! JSON; rotel takes it over gRPC and logs each span.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::gateway::free_address;
use crate::stack::{at, until};

/// An oteltap that listens there, its standard output piped.
pub(crate) async fn oteltap(address: SocketAddr) -> Child {
    let mut command = Command::new(at("target/real/venv/bin/oteltap"));
    command.args(["--port", &address.port().to_string()]);
    let child = spawn(command);
    until("oteltap", async || TcpStream::connect(address).await.ok()).await;
    child
}

/// A rotel, its standard output piped, and where it takes spans over gRPC.
pub(crate) async fn rotel() -> (SocketAddr, Child) {
    let (grpc, http) = (free_address(), free_address());
    let package = at("target/real/venv/lib/python3.11/site-packages/rotel");
    let mut command = Command::new(package.join("rotel-agent"));
    let arguments = format!(
        "start --otlp-grpc-endpoint {grpc} --otlp-http-endpoint {http} --exporter blackhole --debug-log traces \
         --debug-log-verbosity detailed"
    );
    command.args(arguments.split_whitespace());
    let child = spawn(command);
    until("rotel", async || TcpStream::connect(grpc).await.ok()).await;
    (grpc, child)
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.kill_on_drop(true).spawn();
    child.expect("install it with `make install`")
}
