//! When a failed attempt is made again, and after which wait.

use std::{
    hash::{BuildHasher, Hasher},
    time::{Duration, SystemTime},
};

use reqwest::header::HeaderMap;

use crate::limits;

/// Returns whether an answer with this status may be better the next time.
pub(crate) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// Returns a random wait below the exponential bound of the attempt that failed.
pub(crate) fn backoff(attempt: u32, base: Duration, cap: Duration) -> Duration {
    let bound = base
        .saturating_mul(
            1_u32
                .checked_shl(attempt.saturating_sub(1))
                .unwrap_or(u32::MAX),
        )
        .min(cap);
    bound.mul_f64(fraction())
}

/// The standard library seeds its hash maps from the operating system: random enough to spread
/// clients, without a dependency.
fn fraction() -> f64 {
    let bits = std::hash::RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(bits >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

/// Returns the wait that the provider asks for.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|value| value.trim().parse::<f64>().ok());
    if let Some(wait) = number("retry-after-ms").and_then(|ms| seconds(ms / 1000.0)) {
        return Some(wait);
    }
    if let Some(wait) = number("retry-after").and_then(seconds) {
        return Some(wait);
    }
    let date = httpdate::parse_http_date(text("retry-after")?.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

fn seconds(value: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(value).ok()
}

/// Returns whether the wait is longer than a run should be held up.
pub(crate) fn is_too_long(wait: Duration) -> bool {
    wait > limits::MAX_RETRY_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_cap() {
        let (base, cap) = (Duration::from_millis(500), Duration::from_secs(30));
        for (attempt, bound) in [
            (1, 500),
            (2, 1000),
            (6, 16_000),
            (7, 30_000),
            (4000, 30_000),
        ] {
            for _ in 0..50 {
                assert!(backoff(attempt, base, cap) <= Duration::from_millis(bound));
            }
        }
        assert_eq!(backoff(3, Duration::ZERO, cap), Duration::ZERO);
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let read = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after(&headers, now)
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(read("retry-after", "7"), ms(7000));
        assert_eq!(read("retry-after", " 0.25 "), ms(250));
        assert_eq!(read("retry-after-ms", "40"), ms(40));
        assert_eq!(
            read("retry-after", "Sun, 09 Sep 2001 01:46:50 GMT"),
            ms(10_000)
        );
        assert_eq!(read("retry-after", "Sat, 09 Sep 2000 01:46:50 GMT"), ms(0));
        for bad in ["-1", "NaN", "inf", "soon", ""] {
            assert_eq!(read("retry-after", bad), None, "{bad}");
        }
    }
}
