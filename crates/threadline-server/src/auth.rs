//! Who may talk to the server: host, origin and token.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    error::{Code, Problem},
    limits::MAX_TOKEN_BYTES,
    page,
    state::Shared,
};

/// Name of the cookie that holds the token for the page.
pub const COOKIE: &str = "threadline_token";

/// How a caller proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// By the page's cookie.
    Page,
    /// By a bearer token.
    Api,
}

impl Caller {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Api => "api",
        }
    }
}

/// Says why a server must not listen somewhere, or with some token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Everybody on the network could reach it with a token nobody chose.
    #[error("{address} can be reached from other machines, so a token must be chosen for it")]
    TokenNeeded {
        /// The address.
        address: SocketAddr,
    },
    /// The token cannot be sent as a cookie.
    #[error(
        "the token must be 1 to {MAX_TOKEN_BYTES} letters, digits or other visible ASCII characters except quotes, commas, semicolons and backslashes"
    )]
    BadToken,
}

/// Checks that a server may listen on an address.
///
/// # Errors
/// [`ListenError::TokenNeeded`] for an address beyond this machine without a token that was
/// chosen on purpose.
pub fn check_listen(address: SocketAddr, token_chosen: bool) -> Result<(), ListenError> {
    if address.ip().to_canonical().is_loopback() || token_chosen {
        Ok(())
    } else {
        Err(ListenError::TokenNeeded { address })
    }
}

/// Checks that a token can be sent as a cookie and in a header.
///
/// # Errors
/// [`ListenError::BadToken`].
pub fn check_token(token: &str) -> Result<(), ListenError> {
    let fits = |b: u8| b.is_ascii_graphic() && !br#"",;\"#.contains(&b);
    if (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(fits) {
        Ok(())
    } else {
        Err(ListenError::BadToken)
    }
}

/// Compares without telling by its time where the first difference is.
fn same(given: &str, token: &str) -> bool {
    let differences = given
        .bytes()
        .zip(token.bytes())
        .fold(0u8, |differences, (a, b)| {
            std::hint::black_box(differences | (a ^ b))
        });
    // An empty token never opens anything.
    differences == 0 && given.len() == token.len() && !token.is_empty()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(name, value)| (name == COOKIE).then_some(value))
}

fn caller(headers: &HeaderMap, token: &str) -> Option<Caller> {
    if bearer(headers).is_some_and(|given| same(given, token)) {
        return Some(Caller::Api);
    }
    cookies(headers)
        .any(|given| same(given, token))
        .then_some(Caller::Page)
}

fn authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    (!text.contains('@')).then_some(authority)
}

/// The names that this server answers to.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    pub(crate) allowed: Vec<String>,
    pub(crate) listen: IpAddr,
}

impl Hosts {
    /// A page of another site can make its own name lead here, but not a literal address.
    fn answers_to(&self, host: &Authority) -> bool {
        let name = host.host();
        let listed = |allowed: &String| {
            allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host.as_str())
        };
        if name.eq_ignore_ascii_case("localhost") || self.allowed.iter().any(listed) {
            return true;
        }
        let bare = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let Ok(address) = bare.unwrap_or(name).parse::<IpAddr>() else {
            return false;
        };
        let address = address.to_canonical();
        let listen = self.listen.to_canonical();
        address.is_loopback() || address == listen || listen.is_unspecified()
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts
            .next()
            .and_then(|value| authority(value.to_str().ok()?));
        let Some(host) = host.filter(|host| hosts.next().is_none() && self.answers_to(host)) else {
            return Err(Problem::new(
                Code::BadHost,
                "the request's Host header is not a name of this server",
            )
            .hint("use the address that the server printed, or allow the name when it starts"));
        };
        let foreign = headers
            .get_all(header::ORIGIN)
            .iter()
            .any(|origin| !origin.to_str().is_ok_and(|origin| is_of(origin, &host)));
        if foreign {
            let detail = "the request comes from a page of another origin";
            return Err(Problem::new(Code::BadOrigin, detail));
        }
        Ok(())
    }
}

fn is_of(origin: &str, host: &Authority) -> bool {
    let (default_port, rest) = if let Some(rest) = origin.strip_prefix("http://") {
        (80, rest)
    } else if let Some(rest) = origin.strip_prefix("https://") {
        (443, rest)
    } else {
        return false;
    };
    authority(rest).is_some_and(|origin| {
        origin.host().eq_ignore_ascii_case(host.host())
            && origin.port_u16().unwrap_or(default_port) == host.port_u16().unwrap_or(default_port)
    })
}

fn is_api(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/") || path == "/metrics"
}

/// Lets a request through when host, origin and token are right.
pub(crate) async fn guard(
    State(shared): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    if path == "/healthz" {
        return next.run(request).await;
    }
    if let Err(problem) = shared.hosts.check(request.headers()) {
        return problem.into_response();
    }
    let caller = caller(request.headers(), &shared.token);
    if path == "/"
        && matches!(*request.method(), Method::GET | Method::HEAD)
        && let Some(given) = page::query_token(request.uri())
        && (same(&given, &shared.token) || caller.is_some())
    {
        return signed_in(&shared.token);
    }
    let Some(caller) = caller else {
        return if is_api(path) {
            unauthorized()
        } else {
            page::sign_in()
        };
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

fn unauthorized() -> Response {
    let problem = Problem::new(Code::Unauthorized, "the request carries no valid token")
        .hint("send `Authorization: Bearer TOKEN` with the token that the server printed");
    let mut response = problem.into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// Keeps the token in a cookie and out of the address bar.
fn signed_in(token: &str) -> Response {
    let cookie = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/");
    let Ok(cookie) = HeaderValue::from_str(&cookie) else {
        return Problem::new(Code::Internal, "the token cannot be a cookie").into_response();
    };
    let headers = [
        (header::SET_COOKIE, cookie),
        (header::LOCATION, HeaderValue::from_static("/")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

const CSP: &str = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; \
                   connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers that every answer carries.
pub(crate) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CSP),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same("abc", "abc"));
        for (given, token) in [("ab", "abc"), ("abcd", "abc"), ("abd", "abc"), ("", "abc")] {
            assert!(!same(given, token), "{given}");
        }
        assert!(!same("", ""));
    }

    #[test]
    fn only_loopback_goes_without_a_chosen_token() {
        for (address, free) in [
            ("127.0.0.1:4870", true),
            ("127.9.9.9:1", true),
            ("[::1]:4870", true),
            ("[::ffff:127.0.0.1]:4870", true),
            ("0.0.0.0:4870", false),
            ("[::]:4870", false),
            ("192.168.1.4:80", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(check_listen(address, false).is_ok(), free, "{address}");
            assert!(check_listen(address, true).is_ok());
        }
    }

    #[test]
    fn tokens_that_break_a_cookie_are_refused() {
        assert!(check_token("aA0-_.~+/=").is_ok());
        assert!(check_token(&"x".repeat(MAX_TOKEN_BYTES)).is_ok());
        assert!(check_token(&"x".repeat(MAX_TOKEN_BYTES + 1)).is_err());
        for bad in ["", "a b", "a;b", "a,b", "a\"b", "a\\b", "a\nb", "\u{e9}"] {
            assert!(check_token(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_are_loopback_the_listen_address_or_listed() {
        let hosts = |listen: &str| Hosts {
            allowed: vec!["Threads.example".into(), "other.example:8080".into()],
            listen: listen.parse().unwrap(),
        };
        let check = |listen: &str, host: &str| {
            authority(host).is_some_and(|host| hosts(listen).answers_to(&host))
        };
        for good in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:4870",
            "[::1]:4870",
            "threads.example:99",
            "other.example:8080",
        ] {
            assert!(check("127.0.0.1", good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "other.example",
            "10.0.0.1",
            "user@localhost",
            "",
            "0.0.0.0",
            "127.0.0.1.nip.io",
        ] {
            assert!(!check("127.0.0.1", bad), "{bad}");
        }
        assert!(check("10.0.0.1", "10.0.0.1:4870"));
        assert!(!check("10.0.0.1", "10.0.0.2:4870"));
        assert!(check("0.0.0.0", "10.0.0.2:4870"));
        assert!(!check("0.0.0.0", "evil.example"));
    }

    #[test]
    fn an_origin_is_the_host_with_its_port() {
        let host = authority("localhost:4870").unwrap();
        assert!(is_of("http://localhost:4870", &host));
        for bad in [
            "null",
            "http://localhost",
            "http://evil:4870",
            "file://",
            "localhost:4870",
        ] {
            assert!(!is_of(bad, &host), "{bad}");
        }
        assert!(is_of(
            "https://threads.example",
            &authority("threads.example").unwrap()
        ));
    }
}
