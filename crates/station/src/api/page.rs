//! The page and the OpenAPI document, embedded in the binary.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Shared;

/// The contract for machines.
pub(super) const OPENAPI: &str = include_str!("../../openapi.json");

/// A file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// Pages of other sites may load it too: code that they embed.
    public: bool,
}

/// What is built from `web/`.
const FILES: &[File] = &[
    File {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../../web/index.html"),
        public: false,
    },
    File {
        path: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../web/app.js"),
        public: false,
    },
    File {
        path: "/app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../../web/app.css"),
        public: false,
    },
    File {
        path: "/icon.svg",
        content_type: "image/svg+xml",
        bytes: include_bytes!("../../web/icon.svg"),
        public: false,
    },
    File {
        path: "/LICENSES.txt",
        content_type: "text/plain; charset=utf-8",
        bytes: include_bytes!("../../web/LICENSES.txt"),
        public: false,
    },
];

/// Adds the files of the page.
pub(super) fn routes(mut router: Router<Arc<Shared>>) -> Router<Arc<Shared>> {
    for file in FILES {
        router = router.route(file.path, get(move || async move { answer(file) }));
    }
    router
}

pub(super) async fn openapi() -> Response {
    answer(&File { path: "", content_type: "application/json", bytes: OPENAPI.as_bytes(), public: false })
}

fn answer(file: &File) -> Response {
    // The binary may be replaced at any time: ask again.
    let headers = [(header::CONTENT_TYPE, file.content_type), (header::CACHE_CONTROL, "no-cache")];
    let mut response = (headers, file.bytes).into_response();
    if file.public {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}
