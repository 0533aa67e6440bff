//! Settings: flags first, then the environment, then `config.toml`, then defaults.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use threadline_agent::{
    CompactionOptions, Price, Prices, RunLimits, TitleModel, policy::CommandPrefix,
};
use threadline_mcp::{ConfigError, ServerConfig, ServerFile, Servers};
use threadline_model::{PROVIDERS, Thinking};
use threadline_sandbox::Passed;
use threadline_session::payload::{ApprovalPolicy, ModelRef, SandboxMode};

use crate::{
    address::Address,
    args::Common,
    failure::{Failure, Outcome},
};

/// What `config.toml` may say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) base_url: Option<String>,
    #[serde(default)]
    pub(crate) approval: ApprovalFile,
    pub(crate) sandbox: Option<SandboxMode>,
    pub(crate) store: Option<String>,
    /// Tokens that models take at once.
    pub(crate) context_tokens: Option<NonZeroU64>,
    /// What holds for one model, by `provider/name`.
    #[serde(default)]
    pub(crate) models: BTreeMap<String, ModelFile>,
    /// What holds for one provider.
    #[serde(default)]
    pub(crate) providers: BTreeMap<String, ProviderFile>,
    /// What runs and sessions may use.
    #[serde(default)]
    pub(crate) limits: LimitsFile,
    /// MCP servers whose tools sessions have, by name.
    #[serde(default)]
    pub(crate) mcp: BTreeMap<String, ServerFile>,
    #[serde(default)]
    pub(crate) tools: ToolsFile,
    #[serde(default)]
    pub(crate) titles: TitlesFile,
    #[serde(default)]
    pub(crate) telemetry: TelemetryFile,
}

impl File {
    /// Returns the MCP servers, disabled ones included.
    pub(crate) fn servers(&self) -> Result<Vec<ServerConfig>, ConfigError> {
        let each = self.mcp.iter();
        each.map(|(name, server)| ServerConfig::from_file(name, server.clone()))
            .collect()
    }
}

/// What `config.toml` may say of approvals: the policy alone, or a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ApprovalFile {
    /// When new sessions ask.
    pub(crate) policy: Option<ApprovalPolicy>,
    /// Seconds that a question waits before it counts as refused.
    pub(crate) timeout_seconds: Option<NonZeroU64>,
    /// Commands that are granted to new sessions.
    pub(crate) allow: Vec<CommandPrefix>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalTable {
    policy: Option<ApprovalPolicy>,
    timeout_seconds: Option<NonZeroU64>,
    #[serde(default)]
    allow: Vec<String>,
}

impl<'de> Deserialize<'de> for ApprovalFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrTable;

        impl<'de> Visitor<'de> for WordOrTable {
            type Value = ApprovalFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy, or a table with policy, timeout_seconds and allow")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<ApprovalFile, E> {
                let policy = ApprovalPolicy::deserialize(word.into_deserializer())?;
                Ok(ApprovalFile {
                    policy: Some(policy),
                    ..ApprovalFile::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ApprovalFile, A::Error> {
                let table = ApprovalTable::deserialize(MapAccessDeserializer::new(map))?;
                let allow = table.allow.iter().map(|words| {
                    CommandPrefix::parse(words)
                        .map_err(|error| de::Error::custom(format!("`allow`: {error}")))
                });
                Ok(ApprovalFile {
                    policy: table.policy,
                    timeout_seconds: table.timeout_seconds,
                    allow: allow.collect::<Result<_, _>>()?,
                })
            }
        }

        deserializer.deserialize_any(WordOrTable)
    }
}

/// What `config.toml` may say of spans that are sent to a collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TelemetryFile {
    /// Address of a collector; `--otlp` comes before it.
    pub(crate) otlp: Option<String>,
    /// Whether spans say what models and tools were told and said.
    #[serde(default)]
    pub(crate) content: bool,
}

/// What `config.toml` may say of titles.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TitlesFile {
    /// `PROVIDER/NAME`, or `same` for the model that the session's turn ran on.
    #[serde(default, deserialize_with = "title_model")]
    pub(crate) model: Option<TitleModel>,
}

fn title_model<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TitleModel>, D::Error> {
    let text = String::deserialize(from)?;
    if text == "same" {
        return Ok(Some(TitleModel::Same));
    }
    match text.split_once('/') {
        Some((provider, name)) if PROVIDERS.contains(&provider) && !name.is_empty() => {
            Ok(Some(TitleModel::Named(ModelRef {
                provider: provider.into(),
                name: name.into(),
            })))
        }
        _ => Err(de::Error::custom(format!(
            "`{text}` is no model: write `PROVIDER/NAME` with one of {}, or `same`",
            PROVIDERS.join(", ")
        ))),
    }
}

/// What `config.toml` may say of the tools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolsFile {
    /// Variables that commands see besides the built-in list: `NAME`, or `PREFIX*`.
    #[serde(default, deserialize_with = "passed")]
    pub(crate) env: Passed,
}

fn passed<'de, D: Deserializer<'de>>(from: D) -> Result<Passed, D::Error> {
    let entries = Vec::<String>::deserialize(from)?;
    Passed::parse(entries).map_err(de::Error::custom)
}

/// What `config.toml` may say of one provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderFile {
    pub(crate) base_url: Option<String>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) thinking: Option<ThinkingFile>,
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) reasoning_summary: Option<String>,
}

/// How much the model thinks: `"adaptive"`, or a number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum ThinkingFile {
    Tokens(u32),
    Word(ThinkingWord),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ThinkingWord {
    Adaptive,
}

impl From<ThinkingFile> for Thinking {
    fn from(file: ThinkingFile) -> Self {
        match file {
            ThinkingFile::Tokens(tokens) => Self::Budget(tokens),
            ThinkingFile::Word(ThinkingWord::Adaptive) => Self::Adaptive,
        }
    }
}

/// What `config.toml`, and flags of the same names, may say of limits; what they do not name has
/// none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsFile {
    /// Most steps of the turn
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<NonZeroU32>,
    /// Most seconds of the run, waiting for people included
    #[arg(long, value_name = "S")]
    pub(crate) run_seconds: Option<NonZeroU64>,
    /// Most tokens of the run, in and out, subagents included
    #[arg(long, value_name = "N")]
    pub(crate) run_tokens: Option<u64>,
    /// Most that the run may cost, by the prices in config.toml
    #[arg(long, value_name = "COST", value_parser = cost)]
    #[serde(default, deserialize_with = "cost_of_file")]
    pub(crate) run_cost: Option<f64>,
    /// Most steps of the session
    #[arg(long, value_name = "N")]
    pub(crate) session_steps: Option<NonZeroU64>,
    /// Most seconds of all runs of the session together
    #[arg(long, value_name = "S")]
    pub(crate) session_seconds: Option<NonZeroU64>,
    /// Most tokens of the session, in and out, subagents included
    #[arg(long, value_name = "N")]
    pub(crate) session_tokens: Option<u64>,
    /// Most that the session may cost
    #[arg(long, value_name = "COST", value_parser = cost)]
    #[serde(default, deserialize_with = "cost_of_file")]
    pub(crate) session_cost: Option<f64>,
    /// Times that the same calls with the same outcome may follow each other; 0 does not look
    #[arg(long, value_name = "N")]
    pub(crate) repeated_steps: Option<u32>,
}

fn is_cost(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn cost(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if is_cost(value) => Ok(value),
        _ => Err("it is a number, 0 or more".into()),
    }
}

fn cost_of_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let value = f64::deserialize(from)?;
    if is_cost(value) {
        return Ok(Some(value));
    }
    Err(de::Error::custom("a cost is a number, 0 or more"))
}

impl LimitsFile {
    /// Returns these limits, and where they name none, those of the other.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            max_steps: self.max_steps.or(other.max_steps),
            run_seconds: self.run_seconds.or(other.run_seconds),
            run_tokens: self.run_tokens.or(other.run_tokens),
            run_cost: self.run_cost.or(other.run_cost),
            session_steps: self.session_steps.or(other.session_steps),
            session_seconds: self.session_seconds.or(other.session_seconds),
            session_tokens: self.session_tokens.or(other.session_tokens),
            session_cost: self.session_cost.or(other.session_cost),
            repeated_steps: self.repeated_steps.or(other.repeated_steps),
        }
    }
}

impl From<LimitsFile> for RunLimits {
    fn from(file: LimitsFile) -> Self {
        let standard = Self::default();
        let time = |seconds: NonZeroU64| Duration::from_secs(seconds.get());
        Self {
            steps: file.max_steps.map(NonZeroU32::get),
            time: file.run_seconds.map(time),
            run_tokens: file.run_tokens,
            run_cost: file.run_cost,
            session_steps: file.session_steps.map(NonZeroU64::get),
            session_time: file.session_seconds.map(time),
            session_tokens: file.session_tokens,
            session_cost: file.session_cost,
            repeated_steps: match file.repeated_steps {
                Some(0) => None,
                None => standard.repeated_steps,
                times => times,
            },
        }
    }
}

/// What `config.toml` may say of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelFile {
    /// Tokens that it takes at once.
    pub(crate) context_tokens: Option<NonZeroU64>,
    /// What a million tokens cost.
    pub(crate) price: Option<PriceFile>,
}

/// What a million tokens of a model cost.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceFile {
    pub(crate) input: f64,
    /// Of cached input; as `input` when it is not said.
    pub(crate) cached_input: Option<f64>,
    pub(crate) output: f64,
}

impl From<PriceFile> for Price {
    fn from(file: PriceFile) -> Self {
        Self {
            input: file.input,
            cached_input: file.cached_input.unwrap_or(file.input),
            output: file.output,
        }
    }
}

/// All settings of one call of the program.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) flags: Common,
    pub(crate) file: File,
    /// Where sessions are kept.
    pub(crate) address: Address,
    /// A directory for what is kept beside them; `None` when there is no home.
    pub(crate) beside: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn read(flags: Common) -> Outcome<Self> {
        let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = match config_path(&env) {
            Some(path) => read_file(&path)?,
            None => File::default(),
        };
        let address = store_address(&flags, &file, &env)?;
        let beside = match &address {
            Address::Jsonl(root) => Some(root.clone()),
            Address::Sqlite(file) => file.parent().map(Path::to_owned),
            Address::Postgres(_) => data_home(&env),
        };
        Ok(Self {
            flags,
            file,
            address,
            beside,
        })
    }

    /// Returns what models take at once: the flag says it of all, else the file of each or of all.
    pub(crate) fn compaction(&self) -> CompactionOptions {
        let standard = CompactionOptions::default();
        if let Some(tokens) = self.flags.context_tokens {
            return CompactionOptions {
                context_tokens: tokens.get(),
                ..standard
            };
        }
        let all = self.file.context_tokens.map(NonZeroU64::get);
        let each = self.file.models.iter();
        CompactionOptions {
            context_tokens: all.unwrap_or(standard.context_tokens),
            models: each
                .filter_map(|(name, of)| Some((name.clone(), of.context_tokens?.get())))
                .collect(),
        }
    }

    /// Returns the MCP servers, disabled ones included.
    pub(crate) fn servers(&self) -> Outcome<Vec<ServerConfig>> {
        let wrong = |error: ConfigError| Failure::new("config", error.to_string());
        self.file.servers().map_err(wrong)
    }

    /// Returns the address of the collector that spans are sent to.
    pub(crate) fn otlp(&self) -> Option<&str> {
        let flag = self.flags.otlp.as_ref();
        flag.or(self.file.telemetry.otlp.as_ref())
            .map(String::as_str)
    }

    /// Returns what models cost.
    pub(crate) fn prices(&self) -> Prices {
        let each = self.file.models.iter();
        each.filter_map(|(name, of)| Some((name.clone(), of.price?.into())))
            .collect()
    }
}

/// Directories of the XDG specification must be absolute; others are to be passed over.
fn absolute(path: Option<OsString>) -> Option<PathBuf> {
    path.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn below_home(env: &impl Fn(&str) -> Option<OsString>, path: &str) -> Option<PathBuf> {
    absolute(env("HOME")).map(|home| home.join(path))
}

/// Returns where the configuration file is looked for.
pub(crate) fn own_config_path() -> Option<PathBuf> {
    config_path(&|name: &str| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn config_path(env: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let base = absolute(env("XDG_CONFIG_HOME")).or_else(|| below_home(env, ".config"))?;
    Some(base.join("threadline").join("config.toml"))
}

/// Returns where `config.toml` is looked for.
pub(crate) fn config_file() -> Option<PathBuf> {
    config_path(&|name: &str| std::env::var_os(name).filter(|value| !value.is_empty()))
}

/// Returns what `config.toml` says, name by name; `None` when it is not there.
pub(crate) fn config_table() -> Outcome<Option<toml::Table>> {
    let text = config_file().and_then(|path| std::fs::read_to_string(path).ok());
    text.as_deref().map(crate::verbs::config::table).transpose()
}

fn read_file(path: &Path) -> Outcome<File> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(File::default());
        }
        Err(error) => {
            return Err(
                Failure::new("config", format!("{}: {error}", path.display()))
                    .hint("make the file readable, or move it away"),
            );
        }
    };
    parse_file(&text).map_err(|(line, reason)| {
        let place = line.map_or(String::new(), |line| format!(":{line}"));
        Failure::new("config", format!("{}{place}: {reason}", path.display())).hint(format!(
            "mend the file: `${{EDITOR:-vi}} {}`",
            path.display()
        ))
    })
}

/// Returns the settings, or the line and what is wrong with it.
fn parse_file(text: &str) -> Result<File, (Option<usize>, String)> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map(|before| before.matches('\n').count() + 1);
        (line, error.message().trim().replace('\n', " "))
    })?;
    file.servers()
        .and_then(Servers::new)
        .map_err(|error| (None, error.to_string()))?;
    match file.models.keys().find(|name| !name.contains('/')) {
        Some(name) => Err((
            None,
            format!("`{name}` is no model: write `[models.\"PROVIDER/{name}\"]`"),
        )),
        None => Ok(file),
    }
}

fn store_address(
    flags: &Common,
    file: &File,
    env: &impl Fn(&str) -> Option<OsString>,
) -> Outcome<Address> {
    let given = match (&flags.store, env("THREADLINE_HOME"), &file.store) {
        (Some(address), _, _) => Address::parse(address, "--store")?,
        (None, Some(home), _) => Address::Jsonl(PathBuf::from(home)),
        (None, None, Some(text)) => {
            let address = Address::parse(text, "`store` in config.toml")?;
            if address.path().is_some_and(|path| !path.is_absolute()) {
                return Err(Failure::new(
                    "config",
                    format!("`store` in config.toml: `{text}` depends on where you are"),
                )
                .hint("begin the path with a slash"));
            }
            address
        }
        (None, None, None) => data_home(env).map(Address::Jsonl).ok_or_else(|| {
            Failure::usage("there is no home directory to keep sessions in")
                .hint("name a directory: `--store DIR`, or set THREADLINE_HOME")
        })?,
    };
    given.absolute()
}

/// Where data is kept when nothing else is said.
fn data_home(env: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    absolute(env("XDG_DATA_HOME"))
        .or_else(|| below_home(env, ".local/share"))
        .map(|base| base.join("threadline"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_and_wrong_types_of_the_configuration_are_named_with_their_line() {
        let (line, reason) = parse_file("model = \"m\"\ncolour = 1\n").unwrap_err();
        assert_eq!(line, Some(2));
        assert!(reason.contains("unknown field `colour`"), "{reason}");
        let (line, reason) = parse_file("approval = \"sometimes\"\n").unwrap_err();
        assert_eq!(line, Some(1));
        assert!(reason.contains("on_request"), "{reason}");
        assert!(parse_file("model = 3").is_err());
        let file = parse_file("approval = \"never\"\nsandbox = \"read_only\"").unwrap();
        assert_eq!(file.sandbox, Some(SandboxMode::ReadOnly));
    }

    #[test]
    fn approvals_are_a_policy_or_a_table_and_allow_no_words_that_could_run_anything() {
        let word = parse_file("approval = \"strict\"").unwrap().approval;
        assert_eq!(word.policy, Some(ApprovalPolicy::Strict));
        let file = parse_file(
            "[approval]\npolicy = \"never\"\ntimeout_seconds = 60\n\
             allow = [\"cargo test\", \"npm run lint\"]\n",
        );
        let table = file.unwrap().approval;
        assert_eq!(table.policy, Some(ApprovalPolicy::Never));
        assert_eq!(table.timeout_seconds.map(NonZeroU64::get), Some(60));
        let words: Vec<String> = table.allow.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["cargo test", "npm run lint"]);
        for (text, said) in [
            ("[approval]\nallow = [\"sh\"]", "`sh` would allow anything"),
            ("[approval]\nallow = [\"a > b\"]", "not one command"),
            ("[approval]\ntimeout_seconds = 0", "nonzero"),
            ("[approval]\ntimeout = 1", "unknown field `timeout`"),
            ("[approval]\npolicy = \"no\"", "on_request"),
            ("approval = 3", "a policy, or a table"),
        ] {
            let (_, reason) = parse_file(text).unwrap_err();
            assert!(reason.contains(said), "{text}: {reason}");
        }
    }

    #[test]
    fn limits_prices_and_what_a_provider_is_asked_are_read() {
        let file = parse_file(
            "[limits]\nrun_seconds = 60\nrepeated_steps = 0\nmax_steps = 7\nsession_cost = 2\n\
             session_seconds = 90\nsession_steps = 9\n\
             [models.\"a/m\"]\nprice = { input = 3.0, output = 15.0 }\n\
             [providers.anthropic]\nthinking = 2048\n[providers.b]\nthinking = \"adaptive\"\n",
        )
        .unwrap();
        let limits = RunLimits::from(file.limits);
        assert_eq!(limits.time, Some(Duration::from_secs(60)));
        assert_eq!(limits.repeated_steps, None);
        assert_eq!((limits.steps, limits.session_steps), (Some(7), Some(9)));
        assert_eq!(limits.session_time, Some(Duration::from_secs(90)));
        assert_eq!(limits.session_cost, Some(2.0));
        let price = Price::from(file.models["a/m"].price.unwrap());
        assert!((price.cached_input - 3.0).abs() < f64::EPSILON);
        let thinking = |name: &str| file.providers[name].thinking.map(Thinking::from);
        assert_eq!(thinking("anthropic"), Some(Thinking::Budget(2048)));
        assert_eq!(thinking("b"), Some(Thinking::Adaptive));
        for wrong in [
            "run_hours = 1",
            "max_steps = 0",
            "run_cost = -1.0",
            "run_cost = nan",
        ] {
            assert!(
                parse_file(&format!("[limits]\n{wrong}")).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn variables_for_commands_are_named_or_the_line_is_told() {
        let file = parse_file("[tools]\nenv = [\"JAVA_HOME\", \"CARGO_*\"]\n").unwrap();
        assert_eq!(
            file.tools.env,
            Passed::parse(["JAVA_HOME", "CARGO_*"]).unwrap()
        );
        let (line, reason) = parse_file("[tools]\nenv = [\"*\"]\n").unwrap_err();
        assert_eq!(line, Some(2));
        assert!(reason.contains("`*` names no variable"), "{reason}");
    }

    #[test]
    fn a_model_for_titles_is_named_with_its_provider_or_is_the_same() {
        let of = |model: &str| parse_file(&format!("[titles]\nmodel = \"{model}\"\n"));
        assert_eq!(of("same").unwrap().titles.model, Some(TitleModel::Same));
        let named = ModelRef {
            provider: "openai-chat".into(),
            name: "org/m".into(),
        };
        assert_eq!(
            of("openai-chat/org/m").unwrap().titles.model,
            Some(TitleModel::Named(named))
        );
        for wrong in ["m", "nobody/m", "anthropic/"] {
            let (line, reason) = of(wrong).unwrap_err();
            assert_eq!(line, Some(2));
            assert!(reason.contains("is no model"), "{reason}");
        }
        assert_eq!(parse_file("").unwrap().titles.model, None);
    }

    #[test]
    fn flags_for_limits_come_before_the_file() {
        let file = parse_file("[limits]\nrun_tokens = 5\nsession_tokens = 6\n").unwrap();
        let flags = LimitsFile {
            run_tokens: Some(9),
            ..LimitsFile::default()
        };
        let both = flags.or(file.limits);
        assert_eq!((both.run_tokens, both.session_tokens), (Some(9), Some(6)));
        assert_eq!(cost("0.5"), Ok(0.5));
        for wrong in ["-1", "inf", "nan", "x"] {
            assert!(cost(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_context_of_a_model_is_said_by_the_flag_or_of_it_or_of_all() {
        let text = "context_tokens = 100\n[models.\"a/org/m\"]\ncontext_tokens = 7\n";
        let mut settings = Settings {
            flags: Common::default(),
            file: parse_file(text).unwrap(),
            address: Address::Jsonl("/x".into()),
            beside: None,
        };
        let of = |settings: &Settings, name: &str| settings.compaction().tokens_of("a", name);
        assert_eq!(of(&settings, "org/m"), 7);
        assert_eq!(of(&settings, "other"), 100);
        settings.flags.context_tokens = NonZeroU64::new(9);
        assert_eq!(of(&settings, "org/m"), 9);
        for wrong in [
            "context_tokens = 0",
            "[models.\"a/m\"]\ncontext = 1",
            "[models.m]\ncontext_tokens = 1",
        ] {
            assert!(parse_file(wrong).is_err(), "{wrong}");
        }
        assert_eq!(of(&settings, "m"), 9);
        settings.flags.context_tokens = None;
        settings.file = File::default();
        let standard = CompactionOptions::default().context_tokens;
        assert_eq!(of(&settings, "m"), standard);
    }

    #[test]
    fn a_wrong_server_is_told_with_its_key() {
        let server = |text: &str| parse_file(&format!("[mcp.a]\n{text}"));
        let file = server("command = \"x\"\nargs = [\"y\"]\n[mcp.a.env]\nK = \"${V}\"").unwrap();
        assert_eq!(file.servers().unwrap()[0].name.as_str(), "a");
        let (line, reason) = server("comand = \"x\"").unwrap_err();
        assert!(line == Some(2) && reason.contains("comand"), "{reason}");
        for (text, key) in [
            ("url = \"x\"", "`mcp.a.url`"),
            ("", "`mcp.a`"),
            (
                "command = \"x\"\ntimeout_seconds = 0",
                "`mcp.a.timeout_seconds`",
            ),
        ] {
            let (_, reason) = server(text).unwrap_err();
            assert!(reason.contains(key), "{reason}");
        }
    }

    #[test]
    fn relative_xdg_directories_are_passed_over() {
        let env = |name: &str| match name {
            "XDG_DATA_HOME" => Some(OsString::from("relative")),
            "HOME" => Some(OsString::from("/home/x")),
            _ => None,
        };
        let found = store_address(&Common::default(), &File::default(), &env).unwrap();
        assert_eq!(
            found,
            Address::Jsonl("/home/x/.local/share/threadline".into())
        );
        let home = |name: &str| (name == "THREADLINE_HOME").then(|| OsString::from("/t"));
        let found = store_address(&Common::default(), &File::default(), &home).unwrap();
        assert_eq!(found, Address::Jsonl("/t".into()));
    }
}
