//! The page and the OpenAPI document, embedded in the binary.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Shared;

/// The contract for machines.
pub(super) const OPENAPI: &str = include_str!("../../openapi.json");

/// What is built from `web/`: path, type, bytes.
const FILES: &[(&str, &str, &[u8])] = &[
    ("/", "text/html; charset=utf-8", include_bytes!("../../web/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../../web/app.js")),
    ("/app.css", "text/css; charset=utf-8", include_bytes!("../../web/app.css")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../../web/icon.svg")),
    ("/LICENSES.txt", "text/plain; charset=utf-8", include_bytes!("../../web/LICENSES.txt")),
];

/// Adds the files of the page.
pub(super) fn routes(mut router: Router<Arc<Shared>>) -> Router<Arc<Shared>> {
    for (path, content_type, bytes) in FILES {
        router = router.route(path, get(move || async move { file(content_type, bytes) }));
    }
    router
}

pub(super) async fn openapi() -> Response {
    file("application/json", OPENAPI.as_bytes())
}

fn file(content_type: &'static str, bytes: &'static [u8]) -> Response {
    // The binary may be replaced at any time: ask again.
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")], bytes).into_response()
}
