//! `todo`: the model's own list of steps.

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_session::payload::ToolDefinition;

use super::arguments::{Arguments, Field, kind};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, text};
use crate::limits::{TODO_STEP_BYTES, TODO_STEPS};

const TODOS: &str = "todos";

const FIELDS: [Field; 1] = [Field::required(TODOS, "array", "The whole list, in order.")];

/// Keeps a list of steps where the model and the person see it.
///
/// The list is what the last call said, and the log is the only place where it is kept: a resumed
/// session, a fork and a rewind have the right one without any further state.
#[derive(Debug, Clone, Copy)]
pub struct Todo;

#[async_trait]
impl Tool for Todo {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "todo".into(),
            description: "Writes your list of steps, for work that takes several: always the \
                          whole list, with at most one step in progress. Send it again whenever \
                          a step begins or is done."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    TODOS: {
                        "type": "array",
                        "description": FIELDS[0].about,
                        "maxItems": TODO_STEPS,
                        "items": {
                            "type": "object",
                            "properties": {
                                "step": {
                                    "type": "string",
                                    "description": "What is to be done, on one line.",
                                },
                                "status": {
                                    "type": "string",
                                    "enum": Status::ALL.map(Status::name),
                                },
                            },
                            "required": ["step", "status"],
                            "additionalProperties": false,
                        },
                    },
                },
                "required": [TODOS],
                "additionalProperties": false,
            }),
        }
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, _ctx: &ToolContext) -> ToolOutput {
        match parse(arguments) {
            Ok(steps) => ToolOutput::ok(render(&steps)),
            Err(error) => error.into(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Pending,
    InProgress,
    Done,
}

impl Status {
    const ALL: [Self; 3] = [Self::Pending, Self::InProgress, Self::Done];

    const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Done => "done",
        }
    }

    const fn mark(self) -> char {
        match self {
            Self::Pending => ' ',
            Self::InProgress => '>',
            Self::Done => 'x',
        }
    }
}

struct Step {
    text: String,
    status: Status,
}

fn invalid(problem: String) -> ArgumentError {
    ArgumentError::Invalid {
        field: TODOS,
        problem,
    }
}

fn parse(value: &Value) -> Result<Vec<Step>, ArgumentError> {
    let list = Arguments::new("todo", value, &FIELDS)?
        .list(TODOS)?
        .ok_or(ArgumentError::Missing { field: TODOS })?;
    if list.len() > TODO_STEPS {
        return Err(invalid(format!(
            "has {} steps; at most {TODO_STEPS} are taken, so make the steps bigger",
            list.len()
        )));
    }
    let steps: Vec<Step> = list
        .iter()
        .zip(1..)
        .map(|(step, number)| parse_step(number, step))
        .collect::<Result<_, _>>()?;
    let open = |(step, _): &(&Step, usize)| step.status == Status::InProgress;
    let busy: Vec<String> = steps
        .iter()
        .zip(1..)
        .filter(open)
        .map(|(_, number)| number.to_string())
        .collect();
    if busy.len() > 1 {
        return Err(invalid(format!(
            "has more than one step in progress (steps {}); leave one and make the others pending",
            busy.join(", ")
        )));
    }
    Ok(steps)
}

fn parse_step(number: usize, value: &Value) -> Result<Step, ArgumentError> {
    let Value::Object(fields) = value else {
        return Err(invalid(format!(
            "has {} as step {number}; each must be an object with `step` and `status`",
            kind(value)
        )));
    };
    if let Some(key) = fields
        .keys()
        .find(|key| !["step", "status"].contains(&key.as_str()))
    {
        return Err(invalid(format!(
            "has an unknown field `{}` in step {number}; the fields are `step` and `status`",
            text::shorten(&text::printable(key), 100)
        )));
    }
    let field = |name: &str| {
        let found = fields.get(name).unwrap_or(&Value::Null);
        found.as_str().ok_or_else(|| {
            invalid(format!(
                "needs a string as `{name}` of step {number}, not {}",
                kind(found)
            ))
        })
    };
    let what = field("step")?.trim();
    if what.is_empty() {
        return Err(invalid(format!("has no text in step {number}")));
    }
    if what.len() > TODO_STEP_BYTES {
        return Err(invalid(format!(
            "has {} bytes of text in step {number}; at most {TODO_STEP_BYTES} are taken",
            what.len()
        )));
    }
    let name = field("status")?;
    let status = Status::ALL.into_iter().find(|status| status.name() == name);
    let status = status.ok_or_else(|| {
        let known = Status::ALL.map(Status::name).join(", ");
        let name = text::shorten(&text::printable(name), 100);
        invalid(format!(
            "has the status `{name}` in step {number}; a status is one of: {known}"
        ))
    })?;
    Ok(Step {
        text: text::printable(what).into_owned(),
        status,
    })
}

fn render(steps: &[Step]) -> String {
    if steps.is_empty() {
        return "the list is empty".into();
    }
    let done = steps
        .iter()
        .filter(|step| step.status == Status::Done)
        .count();
    let mut out = format!("{done} of {} steps done", steps.len());
    for (step, number) in steps.iter().zip(1..) {
        out.push_str(&format!(
            "\n[{}] {number}. {}",
            step.status.mark(),
            step.text
        ));
    }
    out
}
