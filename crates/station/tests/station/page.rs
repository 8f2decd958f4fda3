//! Files of the page, as a browser loads them.

use crate::{http, quiet, start_new};

#[test]
fn the_page_stays_within_its_size_limit() {
    let station = start_new(quiet);
    let mut sum = 0;
    for path in FILES {
        let headers = [("Accept-Encoding", "gzip"), ("Connection", "close")];
        let answer = http::bytes(station.address(), path, &headers);
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{path}");
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        println!("{:7} bytes {path}", answer.len() - head);
        sum += answer.len() - head;
    }
    println!("{sum:7} bytes in all, of {BYTES_MAX}");
    assert!(sum <= BYTES_MAX, "{sum}");
}

#[test]
fn the_list_of_page_files_is_complete() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
    let mut built: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| format!("/{}", entry.unwrap().file_name().to_str().unwrap()))
        .map(|path| if path == "/index.html" { "/".into() } else { path })
        .collect();
    built.sort_unstable();
    let mut listed = FILES;
    listed.sort_unstable();
    assert_eq!(built, listed);
}

/// Maximum total size of the files in bytes: two seconds at 600 kbit/s.
const BYTES_MAX: usize = 155_000;
const FILES: [&str; 12] = [
    "/",
    "/app.js",
    "/app.css",
    "/mirrors.html",
    "/mirrors-page.js",
    "/mirrors-page.css",
    "/mirrors.js",
    "/mirrors-stations.js",
    "/worker.js",
    "/forecast.wasm",
    "/icon.svg",
    "/LICENSES.txt",
];
