//! The web page, embedded.

use axum::{
    body::Body,
    extract::Query,
    http::{HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use rust_embed::RustEmbed;

use crate::error::{Code, Problem};

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
struct Dist;

/// Returns whether the page was built into this program.
#[must_use]
pub fn is_built() -> bool {
    Dist::get("index.html").is_some()
}

/// Returns the token of a sign-in address.
pub(crate) fn query_token(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    pairs
        .into_iter()
        .find(|(name, _)| name == "token")
        .map(|(_, value)| value)
}

fn mime(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json" | "map" | "webmanifest") => "application/json",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Answers what no route does: the page's files, else 404.
pub(crate) async fn fallback(method: Method, uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let file = if path.starts_with("api/") {
        None
    } else {
        Dist::get(path)
    };
    let reads = matches!(method, Method::GET | Method::HEAD);
    match file {
        Some(file) if reads => {
            // Vite puts a hash of the content into the name of everything under assets/.
            let caching = if path.starts_with("assets/") {
                "private, max-age=31536000, immutable"
            } else {
                "no-store"
            };
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static(mime(path))),
                (header::CACHE_CONTROL, HeaderValue::from_static(caching)),
            ];
            (headers, Body::from(file.data.into_owned())).into_response()
        }
        None if path == "index.html" && reads => html(StatusCode::OK, NOT_BUILT),
        Some(_) => wrong_method(),
        None if path == "index.html" => wrong_method(),
        None => Problem::new(
            Code::NotFound,
            format!("there is nothing at {}", uri.path()),
        )
        .hint("the routes are listed at /api/openapi.json")
        .into_response(),
    }
}

/// Answers a known route asked with a method that it does not know.
pub(crate) async fn wrong_method_fallback() -> Response {
    wrong_method()
}

fn wrong_method() -> Response {
    Problem::new(
        Code::MethodNotAllowed,
        "this route does not know the method",
    )
    .hint("the routes are listed at /api/openapi.json")
    .into_response()
}

/// Answers a page request that carries no valid token.
pub(crate) fn sign_in() -> Response {
    html(StatusCode::UNAUTHORIZED, SIGN_IN)
}

fn html(status: StatusCode, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, text).into_response()
}

const SIGN_IN: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Threadline: sign in</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 36em; margin: 15vh auto; padding: 0 1em">
<h1 style="font-size: 1.4em">This page needs its token</h1>
<p>Open the address that <code>threadline serve</code> printed when it started. It ends in
<code>/?token=...</code> and signs this browser in.</p>
<p>Is the address gone? Stop the server and start it again: it prints the address anew, and
<code>threadline serve --open</code> opens it for you. No session is lost.</p>
</body>
</html>
"#;

const NOT_BUILT: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Threadline</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 36em; margin: 15vh auto; padding: 0 1em">
<h1 style="font-size: 1.4em">This program was built without its page</h1>
<p>Run <code>cargo xtask run</code> in the source folder: it builds the page and starts the server
with it. The API works without the page; its routes are listed at
<a href="/api/openapi.json">/api/openapi.json</a>.</p>
</body>
</html>
"#;
