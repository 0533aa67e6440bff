//! What a run may use, as clients ask for it and as the server allows it.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use threadline_agent::RunLimits;

use super::{Fields, kind, wrong};
use crate::error::{Code, Problem};

const NAMES: [&str; 8] = [
    "maxSteps",
    "maxSeconds",
    "maxTokens",
    "maxCost",
    "maxSessionSteps",
    "maxSessionSeconds",
    "maxSessionTokens",
    "maxSessionCost",
];

/// Reads the field `limits`.
pub(super) fn read(fields: &mut Fields) -> Result<Option<RunLimits>, Problem> {
    let mut map = match fields.take("limits") {
        None => return Ok(None),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(wrong("limits", "an object", &other)),
    };
    if let Some(key) = map.keys().find(|key| !NAMES.contains(&key.as_str())) {
        let field = format!("limits.{key}");
        return Err(
            Problem::field(&field, format!("`{field}` is not a limit of a run"))
                .hint(format!("the limits are {}", NAMES.join(", "))),
        );
    }
    let mut take = |name: &str| map.remove(name).filter(|value| !value.is_null());
    let mut whole = |name: &str, most: u64| match take(name) {
        None => Ok(None),
        Some(value) => {
            let number = value.as_u64().filter(|number| (1..=most).contains(number));
            number
                .map(Some)
                .ok_or_else(|| bad(name, "a whole number from 1", &value))
        }
    };
    let steps = whole("maxSteps", u64::from(u32::MAX))?;
    let limits = RunLimits {
        steps: steps.map(|steps| u32::try_from(steps).unwrap_or(u32::MAX)),
        time: whole("maxSeconds", u64::MAX)?.map(Duration::from_secs),
        run_tokens: whole("maxTokens", u64::MAX)?,
        session_steps: whole("maxSessionSteps", u64::MAX)?,
        session_time: whole("maxSessionSeconds", u64::MAX)?.map(Duration::from_secs),
        session_tokens: whole("maxSessionTokens", u64::MAX)?,
        ..RunLimits::NONE
    };
    let mut cost = |name: &str| match take(name) {
        None => Ok(None),
        Some(value) => {
            let number = value.as_f64().filter(|number| *number >= 0.0);
            number
                .map(Some)
                .ok_or_else(|| bad(name, "a number, 0 or more", &value))
        }
    };
    Ok(Some(RunLimits {
        run_cost: cost("maxCost")?,
        session_cost: cost("maxSessionCost")?,
        ..limits
    }))
}

fn bad(name: &str, wanted: &str, value: &Value) -> Problem {
    let field = format!("limits.{name}");
    let found = match value {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    };
    let detail = format!("`{field}` must be {wanted}, not {found}");
    Problem::field(field, detail)
}

/// Limits by the names that clients know them by.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    max_steps: Option<u32>,
    max_seconds: Option<f64>,
    max_tokens: Option<u64>,
    max_cost: Option<f64>,
    max_session_steps: Option<u64>,
    max_session_seconds: Option<f64>,
    max_session_tokens: Option<u64>,
    max_session_cost: Option<f64>,
}

impl From<&RunLimits> for Shown {
    fn from(limits: &RunLimits) -> Self {
        Self {
            max_steps: limits.steps,
            max_seconds: limits.time.map(|time| time.as_secs_f64()),
            max_tokens: limits.run_tokens,
            max_cost: limits.run_cost,
            max_session_steps: limits.session_steps,
            max_session_seconds: limits.session_time.map(|time| time.as_secs_f64()),
            max_session_tokens: limits.session_tokens,
            max_session_cost: limits.session_cost,
        }
    }
}

/// Refuses limits above those that the server holds every run to.
pub(crate) fn check(asked: &RunLimits, allowed: &RunLimits) -> Result<(), Problem> {
    fn over<T: PartialOrd>(asked: Option<T>, allowed: Option<T>) -> bool {
        matches!((asked, allowed), (Some(asked), Some(allowed)) if asked > allowed)
    }
    let found = [
        over(asked.steps, allowed.steps),
        over(asked.time, allowed.time),
        over(asked.run_tokens, allowed.run_tokens),
        over(asked.run_cost, allowed.run_cost),
        over(asked.session_steps, allowed.session_steps),
        over(asked.session_time, allowed.session_time),
        over(asked.session_tokens, allowed.session_tokens),
        over(asked.session_cost, allowed.session_cost),
    ];
    let Some((name, _)) = NAMES.iter().zip(found).find(|(_, over)| *over) else {
        return Ok(());
    };
    let field = format!("limits.{name}");
    let detail = format!("`{field}` asks for more than this server allows");
    Err(Problem::new(Code::PolicyCeiling, detail)
        .at(field)
        .hint("ask for less; what is allowed is shown at /api/agent/config"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(value: Value) -> Result<Option<RunLimits>, Problem> {
        let body = json!({"limits": value}).to_string();
        read(&mut Fields::parse(body.as_bytes(), &["limits"])?)
    }

    #[test]
    fn every_limit_is_read_and_refused_one_above_what_is_allowed() {
        for (at, name) in NAMES.iter().enumerate() {
            let of = |number: u64| limits(json!({ *name: number })).unwrap().unwrap();
            assert_ne!(of(7), RunLimits::NONE, "{name}");
            let (same, more) = (check(&of(7), &of(7)), check(&of(8), &of(7)));
            assert!(same.is_ok() && check(&of(8), &RunLimits::NONE).is_ok());
            let problem = more.unwrap_err();
            assert_eq!(problem.code, Code::PolicyCeiling);
            assert_eq!(problem.field, Some(format!("limits.{}", NAMES[at])));
            let shown = serde_json::to_value(Shown::from(&of(7))).unwrap();
            assert_eq!(shown[name].as_f64(), Some(7.0));
        }
        assert_eq!(limits(json!(null)).unwrap(), None);
        let empty = limits(json!({"maxCost": null})).unwrap();
        assert_eq!(empty, Some(RunLimits::NONE));
    }

    #[test]
    fn limits_that_are_none_name_their_field() {
        for (value, field) in [
            (json!([]), "limits"),
            (json!({"maxHours": 1}), "limits.maxHours"),
            (json!({"maxSteps": 0}), "limits.maxSteps"),
            (json!({"maxSteps": 1u64 << 32}), "limits.maxSteps"),
            (json!({"maxTokens": 1.5}), "limits.maxTokens"),
            (json!({"maxSeconds": "1"}), "limits.maxSeconds"),
            (json!({"maxCost": -0.1}), "limits.maxCost"),
        ] {
            let problem = limits(value).unwrap_err();
            assert_eq!(problem.code, Code::InvalidInput);
            assert_eq!(problem.field.as_deref(), Some(field));
        }
    }
}
