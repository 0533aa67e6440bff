//! What a person can set for a session: model, approval policy and sandbox mode.
//!
//! What is set counts from the next turn on and is in the log with it. Until then what the log says
//! is in force, or the defaults in a session without a turn.

use agent_client_protocol_schema::v1::{
    Error, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionConfigSelectOption, SessionMode, SessionModeState,
};
use threadline_agent::{Agents, RunInput};
use threadline_session::payload::{ApprovalPolicy, ModelRef, SandboxMode, TurnContext};

use crate::rpc::invalid_params;

/// The id of the model's option.
pub(crate) const MODEL: &str = "model";
/// The id of the approval policy's option.
pub(crate) const APPROVAL: &str = "approval";
/// The id of the sandbox mode's option.
pub(crate) const SANDBOX: &str = "sandbox";

const POLICIES: [(ApprovalPolicy, &str, &str, &str); 3] = [
    (
        ApprovalPolicy::Strict,
        "strict",
        "Ask always",
        "Ask before every change and every command",
    ),
    (
        ApprovalPolicy::OnRequest,
        "on_request",
        "Ask when needed",
        "Ask before commands that are not known to only read",
    ),
    (
        ApprovalPolicy::Never,
        "never",
        "Never ask",
        "What the sandbox forbids fails",
    ),
];

const SANDBOXES: [(SandboxMode, &str, &str, &str); 3] = [
    (
        SandboxMode::ReadOnly,
        "read_only",
        "Read only",
        "Nothing is changed",
    ),
    (
        SandboxMode::WorkspaceWrite,
        "workspace_write",
        "Write in the workspace",
        "Files of the working directory may be changed",
    ),
    (
        SandboxMode::DangerFullAccess,
        "danger_full_access",
        "Full access",
        "No sandbox",
    ),
];

/// What is in force in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    model: ModelRef,
    approval: ApprovalPolicy,
    sandbox: SandboxMode,
    /// What was set since the last turn, to be named with the next one.
    set: Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Set {
    model: bool,
    approval: bool,
    sandbox: bool,
}

impl Settings {
    /// Returns what the log says, or the defaults.
    pub(crate) fn new(agents: &Agents, context: Option<&TurnContext>) -> Self {
        let config = agents.config();
        let Some(context) = context else {
            return Self {
                model: config.models.default_model().clone(),
                approval: config.defaults.approval_policy,
                sandbox: config.defaults.sandbox_mode,
                set: Set::default(),
            };
        };
        Self {
            model: ModelRef {
                provider: context.provider.clone(),
                name: context.model.clone(),
            },
            approval: context.approval_policy,
            sandbox: context.sandbox_mode,
            set: Set::default(),
        }
    }

    /// Names in a run's input what was set.
    pub(crate) fn apply(&self, input: &mut RunInput) {
        input.model = (self.set.model).then(|| name(&self.model));
        input.approval_policy = self.set.approval.then_some(self.approval);
        input.sandbox_mode = self.set.sandbox.then_some(self.sandbox);
    }

    /// Notes that a turn has begun under what was set; `sent` is what it was begun under.
    pub(crate) fn logged(&mut self, sent: &Self) {
        self.set.model &= self.model != sent.model;
        self.set.approval &= self.approval != sent.approval;
        self.set.sandbox &= self.sandbox != sent.sandbox;
    }

    /// Sets an option.
    ///
    /// # Errors
    /// Says which values there are.
    pub(crate) fn set(
        &mut self,
        agents: &Agents,
        option: &str,
        value: &SessionConfigOptionValue,
    ) -> Result<(), Error> {
        let SessionConfigOptionValue::ValueId { value } = value else {
            return Err(invalid_params(&format!(
                "`{option}` takes one of its values, not a truth value"
            )));
        };
        self.set_named(agents, option, &value.0)
    }

    /// Sets an option to a value by its name.
    ///
    /// # Errors
    /// Says which values there are.
    pub(crate) fn set_named(
        &mut self,
        agents: &Agents,
        option: &str,
        value: &str,
    ) -> Result<(), Error> {
        match option {
            MODEL => {
                let models = &agents.config().models;
                let chosen = models.choose(value, &self.model.provider);
                if chosen.name.trim().is_empty() {
                    return Err(invalid_params("a model needs a name"));
                }
                models
                    .provider(&chosen.provider)
                    .map_err(|error| invalid_params(&error.to_string()))?;
                self.model = chosen;
                self.set.model = true;
            }
            APPROVAL => {
                self.approval = pick(&POLICIES, APPROVAL, value)?;
                self.set.approval = true;
            }
            SANDBOX => {
                self.sandbox = pick(&SANDBOXES, SANDBOX, value)?;
                self.set.sandbox = true;
            }
            _ => {
                return Err(invalid_params(&format!(
                    "there is no such option; there are `{MODEL}`, `{APPROVAL}` and `{SANDBOX}`"
                )));
            }
        }
        Ok(())
    }

    /// Returns all options with what is in force.
    pub(crate) fn options(&self, agents: &Agents) -> Vec<SessionConfigOption> {
        let default = name(agents.config().models.default_model());
        let current = name(&self.model);
        let mut models = vec![current.clone()];
        if default != current {
            models.push(default);
        }
        let models: Vec<_> = models
            .into_iter()
            .map(|model| SessionConfigSelectOption::new(model.clone(), model))
            .collect();
        vec![
            SessionConfigOption::select(MODEL, "Model", current, models)
                .category(SessionConfigOptionCategory::Model),
            SessionConfigOption::select(
                APPROVAL,
                "Approval",
                word(&POLICIES, self.approval),
                select(&POLICIES),
            )
            .description("When a person is asked before a tool runs".to_owned())
            .category(SessionConfigOptionCategory::Mode),
            SessionConfigOption::select(
                SANDBOX,
                "Sandbox",
                word(&SANDBOXES, self.sandbox),
                select(&SANDBOXES),
            )
            .description("What tools may touch".to_owned()),
        ]
    }

    /// Returns the approval policies as modes.
    pub(crate) fn modes(&self) -> SessionModeState {
        let modes = POLICIES
            .map(|(_, id, name, about)| SessionMode::new(id, name).description(about.to_owned()));
        SessionModeState::new(self.mode(), modes.to_vec())
    }

    /// Returns the id of the mode in force.
    pub(crate) fn mode(&self) -> &'static str {
        word(&POLICIES, self.approval)
    }
}

fn name(model: &ModelRef) -> String {
    format!("{}/{}", model.provider, model.name)
}

type Row<T> = (T, &'static str, &'static str, &'static str);

fn word<T: Copy + PartialEq>(table: &[Row<T>], value: T) -> &'static str {
    let row = table.iter().find(|row| row.0 == value);
    row.map_or("", |row| row.1)
}

fn pick<T: Copy>(table: &[Row<T>], option: &str, value: &str) -> Result<T, Error> {
    let row = table.iter().find(|row| row.1 == value);
    row.map(|row| row.0).ok_or_else(|| {
        let known: Vec<_> = table.iter().map(|row| format!("`{}`", row.1)).collect();
        invalid_params(&format!("`{option}` is one of {}", known.join(", ")))
    })
}

fn select<T>(table: &[Row<T>]) -> Vec<SessionConfigSelectOption> {
    let option =
        |row: &Row<T>| SessionConfigSelectOption::new(row.1, row.2).description(row.3.to_owned());
    table.iter().map(option).collect()
}
