//! `response_time` and `connect` with HTTP servers that are not stations.

use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use barograph_forecast::Failure;
use barograph_probe::io::{probe, run, run_one, trusting};
use barograph_probe::{Experiment, Plan, QuantityResult, Target};

use crate::common::{LONG, Server, context, read_head, read_request, tls_server, trust};

/// Pause between the first and the last byte of the slow server's response.
const PAUSE: Duration = Duration::from_millis(150);

#[test]
fn the_first_and_the_last_byte_are_timed_separately() {
    let server = Server::start(|mut stream, stop| {
        read_request(&mut stream, stop);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").unwrap();
        // The test measures a pause, so the server must pause.
        thread::sleep(PAUSE);
        stream.write_all(b"b").unwrap();
        crate::common::swallow(&mut stream, stop);
    });
    let [first, last] = times(&server.url()).map(|time| time.unwrap());
    assert!(first < PAUSE.as_secs_f64(), "{first}");
    assert!((PAUSE.as_secs_f64()..5.0).contains(&last), "{last}");
}

#[test]
fn the_end_of_a_body_is_found_by_length_chunks_or_close() {
    for (name, response) in [
        ("a length", &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..]),
        ("no body", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("the end of the connection", b"HTTP/1.0 200 OK\r\n\r\nhello"),
        ("chunks", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        (
            "an interim response first",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ),
        ("a redirect", b"HTTP/1.1 301 Moved\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"),
        ("an error", b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno"),
    ] {
        let server = answering(response);
        for time in times(&server.url()) {
            assert!(time.as_ref().is_ok_and(|s| 0.0 < *s && *s < 5.0), "{name}: {time:?}");
        }
    }
}

#[test]
fn a_truncated_body_is_a_reset() {
    let server = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    let [first, last] = times(&server.url());
    assert!(first.is_ok());
    assert_eq!(last.unwrap_err(), Failure::Reset);
}

#[test]
fn a_body_with_a_length_above_the_limit_is_not_read() {
    let server = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nhello");
    let [_, last] = times(&server.url());
    assert_eq!(last.unwrap_err(), Failure::Local);
}

#[test]
fn the_http_request_has_path_and_host_header_and_no_token() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server = Server::start(move |mut stream, stop| {
        let _ = sender.send(String::from_utf8(read_request(&mut stream, stop)).unwrap());
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
    });
    let target = Target::parse(&format!("http://{}/a/b?c=d#e", server.address)).unwrap();
    let context = barograph_probe::io::ProbeContext { token: Some("secret".into()), ..context(LONG) };
    let readings = run_one(&target, Experiment::ResponseTime, &context);
    assert!(readings.iter().all(|reading| reading.result.is_ok()), "{readings:?}");
    let request = receiver.recv_timeout(LONG).unwrap();
    assert!(request.starts_with("GET /a/b?c=d HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("\r\nHost: {}\r\n", server.address)), "{request}");
    assert!(request.contains("\r\nConnection: close\r\n"), "{request}");
    assert!(!request.contains("secret"), "a token is for stations: {request}");
}

#[test]
fn a_plain_server_is_probed_by_connect_and_http() {
    let server = answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(
        quantities(&probe(&server.url(), 1000, &context(LONG))),
        ["connect", "first_byte", "response_time"]
    );
    assert_eq!(quantities(&probe(&server.target(), 1000, &context(LONG))), ["connect"]);
}

#[test]
fn response_time_is_measured_over_https() {
    let config = tls_server();
    let server = Server::start(move |stream: TcpStream, _| {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        if read_head(&mut tls).is_none() {
            return;
        }
        // The server sends no length and no `close_notify`: only the end of the connection ends the
        // body.
        let _ = tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello");
    });
    let context = barograph_probe::io::ProbeContext { tls: Some(trust()), ..context(LONG) };
    for host in ["localhost", "127.0.0.1"] {
        // On a system without a hosts file, `localhost` may not resolve.
        if (host, 0).to_socket_addrs().is_err() {
            barograph_sim::report_skipped("https by a name: 'localhost' has no address on this machine");
            continue;
        }
        let target = Target::parse(&format!("https://{host}:{}/", server.address.port())).unwrap();
        let readings = run(&target, &Plan::web(), &context);
        assert!(readings.iter().all(|reading| reading.result.is_ok()), "{readings:?}");
    }
}

#[test]
fn https_to_a_server_without_tls_is_an_invalid_response() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n"] {
        let server = Server::start(move |mut stream, stop| {
            // Do not wait for the end of a request, because a TLS ClientHello does not end as a
            // request does.
            let _ = stream.write_all(answer);
            crate::common::swallow(&mut stream, stop);
        });
        let target = Target::parse(&format!("https://{}/", server.address)).unwrap();
        let tls = Some(Arc::new(trusting(rustls::RootCertStore::empty()).unwrap()));
        let context = barograph_probe::io::ProbeContext { tls, ..context(LONG) };
        for reading in run_one(&target, Experiment::ResponseTime, &context) {
            assert_eq!(reading.result.unwrap_err().failure, Failure::InvalidResponse);
        }
    }
}

/// An nginx server, if this host has one.
struct Nginx {
    child: std::process::Child,
    address: std::net::SocketAddr,
    directory: std::path::PathBuf,
}

impl Nginx {
    fn start() -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = std::env::temp_dir().join(format!("barograph-nginx-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let shown = directory.display();
        let configuration = format!(
            "daemon off; master_process off; pid {shown}/pid; error_log {shown}/error.log;\n\
             events {{}}\n\
             http {{ access_log off; client_body_temp_path {shown}/a; proxy_temp_path {shown}/b;\n\
             fastcgi_temp_path {shown}/c; uwsgi_temp_path {shown}/d; scgi_temp_path {shown}/e;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 'fair weather'; }} }} }}\n"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let mut command = std::process::Command::new("nginx");
        command.arg("-p").arg(&directory).arg("-c").arg(&file).arg("-e").arg(directory.join("error.log"));
        let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            let _ = std::fs::remove_dir_all(&directory);
            return None;
        };
        let mut nginx = Self { child, address: ([127, 0, 0, 1], port).into(), directory };
        for _ in 0..400 {
            if TcpStream::connect(nginx.address).is_ok() {
                return Some(nginx);
            }
            if let Some(status) = nginx.child.try_wait().unwrap() {
                let log = std::fs::read_to_string(nginx.directory.join("error.log")).unwrap_or_default();
                panic!("nginx ended with {status}: {log}");
            }
            thread::park_timeout(Duration::from_millis(25));
        }
        panic!("nginx does not listen");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn nginx_is_measured() {
    let Some(nginx) = Nginx::start() else {
        barograph_sim::report_missing("measuring nginx, which this host does not have");
        return;
    };
    let url = Target::parse(&format!("http://{}/", nginx.address)).unwrap();
    let readings = probe(&url, 1000, &context(LONG));
    assert_eq!(quantities(&readings), ["connect", "first_byte", "response_time"]);
    let values: Vec<f64> = readings.iter().map(|reading| reading.result.as_ref().unwrap().value).collect();
    assert!(values.iter().all(|s| 0.0 < *s && *s < 5.0), "{values:?}");
    assert!(values[1] <= values[2], "the last byte is not before the first: {values:?}");
    assert_eq!(quantities(&probe(&crate::common::target(nginx.address), 1000, &context(LONG))), ["connect"]);
}

fn answering(response: &'static [u8]) -> Server {
    Server::start(move |mut stream, stop| {
        read_request(&mut stream, stop);
        let _ = stream.write_all(response);
    })
}

/// Times to the first and to the last byte.
fn times(target: &Target) -> [Result<f64, Failure>; 2] {
    let readings = run_one(target, Experiment::ResponseTime, &context(LONG));
    let times = readings
        .into_iter()
        .map(|reading| reading.result.map(|measured| measured.value).map_err(|error| error.failure));
    times.collect::<Vec<_>>().try_into().unwrap()
}

fn quantities(readings: &[QuantityResult]) -> Vec<&str> {
    assert!(readings.iter().all(|reading| reading.result.is_ok()), "{readings:?}");
    readings.iter().map(|reading| reading.quantity.as_str()).collect()
}
