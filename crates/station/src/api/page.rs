//! The page and the OpenAPI document, embedded in the binary.

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use barograph_api::OPENAPI;

use super::ApiState;
use super::file::File;

/// Files built from `web/`.
static FILES: [File; 12] = [
    File::own("/", HTML, include_bytes!("../../web/index.html")),
    File::own("/app.js", SCRIPT, include_bytes!("../../web/app.js")),
    File::own("/app.css", STYLE, include_bytes!("../../web/app.css")),
    File::own("/mirrors.html", HTML, include_bytes!("../../web/mirrors.html")),
    File::own("/mirrors-page.js", SCRIPT, include_bytes!("../../web/mirrors-page.js")),
    File::own("/mirrors-page.css", STYLE, include_bytes!("../../web/mirrors-page.css")),
    File::public("/mirrors.js", SCRIPT, include_bytes!("../../web/mirrors.js")),
    File::public("/mirrors-stations.js", SCRIPT, include_bytes!("../../web/mirrors-stations.js")),
    File::public("/worker.js", SCRIPT, include_bytes!("../../web/worker.js")),
    File::public("/forecast.wasm", "application/wasm", include_bytes!("../../web/forecast.wasm")),
    File::own("/icon.svg", "image/svg+xml", include_bytes!("../../web/icon.svg")),
    File::own("/LICENSES.txt", "text/plain; charset=utf-8", include_bytes!("../../web/LICENSES.txt")),
];

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

static CONTRACT: File = File::own("/v1/openapi.json", "application/json", OPENAPI.as_bytes());

/// Adds the files of the page, compressed in advance. One thread serves all requests, so
/// compression during one request would delay the other requests, and pages would measure this
/// delay.
pub(super) fn routes(mut router: Router<Arc<ApiState>>) -> Router<Arc<ApiState>> {
    CONTRACT.pack();
    for file in &FILES {
        file.pack();
        router = router.route(file.path, get(move |headers: HeaderMap| async move { file.answer(&headers) }));
    }
    router
}

pub(super) async fn openapi(headers: HeaderMap) -> Response {
    CONTRACT.answer(&headers)
}
