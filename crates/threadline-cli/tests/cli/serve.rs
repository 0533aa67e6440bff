//! `threadline serve` as far as the program itself goes; the routes have tests of their own.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use rustix::process::Signal;
use threadline_strict_model::Reply;

use crate::support::{Strict, World};

/// Sends one request and returns the whole answer.
fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn the_token_is_kept_so_that_an_open_page_outlives_its_server() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let token = || {
        let mut running =
            world.start(&["serve", "--provider", "offline", "--listen", "127.0.0.1:0"]);
        let line = running.next_line().unwrap();
        running.signal(Signal::KILL);
        running.finish();
        line.split_once("/?token=").unwrap().1.to_owned()
    };
    let first = token();
    let path = world.store().join("serve-token");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(token(), first);
    // One that others could have read is not used again, and nor is a garbled one.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let second = token();
    assert_ne!(second, first);
    std::fs::write(&path, "short").unwrap();
    assert_ne!(token(), second);
}

#[test]
fn serve_prints_its_address_with_a_token_and_ends_in_good_order() {
    let strict = Strict::new([Reply::text("Some words").gate("a")]);
    let world = World::new().with_model(&strict);
    let mut running = world.start(&["serve", "--listen", "127.0.0.1:0"]);
    let line = running.next_line().unwrap();
    let url = line.strip_prefix("Threadline is at http://").unwrap();
    let (address, token) = url.split_once("/?token=").unwrap();
    assert!(token.len() >= 32, "{line}");
    let store = world.store().display().to_string();
    assert_eq!(
        running.next_line().unwrap(),
        format!("Sessions are kept in {store}")
    );
    let healthy = send(
        address,
        &format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"),
    );
    assert!(healthy.starts_with("HTTP/1.1 200"), "{healthy}");
    let closed = send(
        address,
        &format!(
            "GET /api/agent/sessions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        ),
    );
    assert!(closed.starts_with("HTTP/1.1 401"), "{closed}");
    // A run whose client has gone away goes on; the server's end cancels it.
    let body = r#"{"task":"hello"}"#;
    let mut client = TcpStream::connect(address).unwrap();
    write!(
        client,
        "POST /api/agent/stream HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    strict.wait_reached("a");
    drop(client);
    running.signal(Signal::INT);
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    let listed = world.call(&["ls", "--json"]);
    let id = listed.ok().json()["sessions"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let events = world.events(&id);
    assert_eq!(
        events.last().unwrap()["data"]["reason"]["kind"],
        "cancelled"
    );
    world.call(&["verify", &id, "--requests"]).ok();
}

#[test]
fn an_address_in_use_says_what_to_do() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["serve", "--provider", "offline", "--listen", &address];
    world
        .call(&args)
        .exits(1)
        .says(&[&address, "--listen 127.0.0.1:0"]);
    assert!(!world.store().exists());
}
