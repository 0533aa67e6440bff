//! Settings: flags first, then the environment, then `config.toml`, then defaults.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use threadline_agent::{CompactionOptions, Price, Prices, RunLimits, policy::CommandPrefix};
use threadline_mcp::{ConfigError, ServerConfig, ServerFile, Servers};
use threadline_model::Thinking;
use threadline_session::payload::{ApprovalPolicy, SandboxMode};

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

/// What `config.toml` may say of limits; what it does not name has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsFile {
    /// Seconds of a run.
    pub(crate) run_seconds: Option<NonZeroU64>,
    pub(crate) run_tokens: Option<u64>,
    pub(crate) session_tokens: Option<u64>,
    pub(crate) run_cost: Option<f64>,
    pub(crate) session_cost: Option<f64>,
    /// Times that the same calls with the same outcome may follow each other; 0 does not look.
    pub(crate) repeated_steps: Option<u32>,
}

impl From<LimitsFile> for RunLimits {
    fn from(file: LimitsFile) -> Self {
        let standard = Self::default();
        Self {
            time: file
                .run_seconds
                .map(|seconds| Duration::from_secs(seconds.get())),
            run_tokens: file.run_tokens,
            session_tokens: file.session_tokens,
            run_cost: file.run_cost,
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
            "[limits]\nrun_seconds = 60\nrepeated_steps = 0\n\
             [models.\"a/m\"]\nprice = { input = 3.0, output = 15.0 }\n\
             [providers.anthropic]\nthinking = 2048\n[providers.b]\nthinking = \"adaptive\"\n",
        )
        .unwrap();
        let limits = RunLimits::from(file.limits);
        assert_eq!(limits.time, Some(Duration::from_secs(60)));
        assert_eq!(limits.repeated_steps, None);
        let price = Price::from(file.models["a/m"].price.unwrap());
        assert!((price.cached_input - 3.0).abs() < f64::EPSILON);
        let thinking = |name: &str| file.providers[name].thinking.map(Thinking::from);
        assert_eq!(thinking("anthropic"), Some(Thinking::Budget(2048)));
        assert_eq!(thinking("b"), Some(Thinking::Adaptive));
        assert!(parse_file("[limits]\nrun_hours = 1").is_err());
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
