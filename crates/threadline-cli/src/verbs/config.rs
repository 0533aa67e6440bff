//! `threadline config show`: what holds, and where it comes from.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    address,
    args::ConfigShow,
    failure::{Exit, Failure, Outcome},
    settings::{self, Settings},
    text,
    ui::{Tone, Ui},
};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
enum Source {
    /// A flag of this call.
    Flag(&'static str),
    /// A variable of the environment.
    Environment(&'static str),
    /// `config.toml`.
    File,
    /// Nobody said anything.
    Default,
}

impl Source {
    fn told(&self) -> String {
        match self {
            Self::Flag(name) | Self::Environment(name) => (*name).to_owned(),
            Self::File => "config.toml".to_owned(),
            Self::Default => "default".to_owned(),
        }
    }
}

#[derive(Debug, PartialEq, Serialize)]
struct Setting {
    name: String,
    value: Value,
    source: Source,
}

/// Keys of the environment that providers read; their values are never shown.
const SECRETS: [&str; 2] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
/// Variables of the environment that say where a provider is.
const URLS: [&str; 2] = ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"];
/// Settings that a flag, or the file, may name, with the flag and the default.
const NAMED: [(&str, &str, Option<&str>); 6] = [
    ("provider", "--provider", None),
    ("model", "--model", None),
    ("base_url", "--base-url", None),
    ("context_tokens", "--context-tokens", None),
    ("approval", "", Some("on_request")),
    ("sandbox", "", Some("workspace_write")),
];
const HIDDEN: &str = "********";

/// Shows what holds.
pub(crate) fn show(ui: Ui, settings: &Settings, args: &ConfigShow) -> Outcome<Exit> {
    let path = settings::config_file();
    let table = settings::config_table()?;
    let exists = table.is_some();
    let found = settings_of(settings, &table.unwrap_or_default(), &variable);
    let shown = path.as_ref().map(|path| path.display().to_string());
    if args.json {
        ui.json(&json!({"file": shown, "fileExists": exists, "settings": found}))?;
        return Ok(Exit::Completed);
    }
    let file = match (&shown, exists) {
        (None, _) => "none: there is no home directory".to_owned(),
        (Some(path), true) => path.clone(),
        (Some(path), false) => format!("{path} (not there)"),
    };
    ui.line(&format!("{} {file}", ui.out(Tone::Strong, "File:")))?;
    let wide = found.iter().map(|setting| setting.name.len()).max();
    for Setting {
        name,
        value,
        source,
    } in &found
    {
        let value = match value {
            Value::Null => "(not set)".to_owned(),
            Value::String(text) => text::line(text, 500),
            other => text::line(&other.to_string(), 500),
        };
        let wide = wide.unwrap_or(0);
        let source = ui.out(Tone::Faint, &format!("[{}]", source.told()));
        ui.line(&format!("{name:<wide$}  {value}  {source}"))?;
    }
    Ok(Exit::Completed)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn settings_of(
    settings: &Settings,
    file: &toml::Table,
    env: &impl Fn(&str) -> Option<String>,
) -> Vec<Setting> {
    let flags = &settings.flags;
    let mut found = vec![Setting {
        name: "store".into(),
        value: Value::String(settings.address.to_string()),
        source: if flags.store.is_some() {
            Source::Flag("--store")
        } else if env("THREADLINE_HOME").is_some() {
            Source::Environment("THREADLINE_HOME")
        } else if file.contains_key("store") {
            Source::File
        } else {
            Source::Default
        },
    }];
    let mut rest = file.clone();
    rest.remove("store");
    for (name, flag, default) in NAMED {
        let given = match name {
            "provider" => flags.provider.clone(),
            "model" => flags.model.clone(),
            "base_url" => flags.base_url.clone(),
            "context_tokens" => flags.context_tokens.map(|tokens| tokens.to_string()),
            _ => None,
        };
        // `approval` is a word, or a table that has it among others.
        let of_file = match rest.remove(name) {
            Some(toml::Value::Table(mut table)) => {
                let policy = table.remove("policy");
                rest.insert(name.into(), toml::Value::Table(table));
                policy
            }
            other => other,
        };
        let (value, source) = match (given, of_file) {
            (Some(value), _) => (Value::String(value), Source::Flag(flag)),
            (None, Some(value)) => (plain(&value), Source::File),
            (None, None) if name == "context_tokens" => {
                (json!(settings.compaction().context_tokens), Source::Default)
            }
            (None, None) => (
                default.map_or(Value::Null, |value| Value::String(value.into())),
                Source::Default,
            ),
        };
        found.push(Setting {
            name: name.into(),
            value: masked(name, value),
            source,
        });
    }
    leaves("", &toml::Value::Table(rest), false, &mut found);
    for name in URLS {
        if let Some(url) = env(name) {
            found.push(Setting {
                name: name.into(),
                value: Value::String(address::without_password(&url)),
                source: Source::Environment(name),
            });
        }
    }
    for name in SECRETS {
        found.push(Setting {
            name: name.into(),
            value: env(name).map_or(Value::Null, |_| Value::String(HIDDEN.into())),
            source: Source::Environment(name),
        });
    }
    found
}

/// Adds every value of the file that is no table, under its dotted name.
fn leaves(path: &str, value: &toml::Value, secret: bool, found: &mut Vec<Setting>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let bare = key
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
                let key = if bare {
                    key.clone()
                } else {
                    format!("{key:?}")
                };
                let name = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                // What programs and servers are given may hold keys.
                let secret = secret || matches!(key.as_str(), "headers" | "env");
                leaves(&name, value, secret, found);
            }
        }
        value => {
            let shown = if secret {
                Value::String(HIDDEN.into())
            } else {
                masked(path, plain(value))
            };
            found.push(Setting {
                name: path.into(),
                value: shown,
                source: Source::File,
            });
        }
    }
}

/// Hides what may be a secret, by its name or its form.
fn masked(name: &str, value: Value) -> Value {
    let last = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let words = last.split(|c: char| !c.is_alphanumeric());
    let secret = |word: &str| {
        matches!(
            word,
            "key" | "apikey" | "token" | "secret" | "password" | "authorization" | "credentials"
        )
    };
    if words.into_iter().any(secret) {
        return Value::String(HIDDEN.into());
    }
    match value {
        Value::String(text) if text.contains("://") => {
            Value::String(address::without_password(&text))
        }
        other => other,
    }
}

fn plain(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text.clone()),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(is) => json!(is),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(values) => Value::Array(values.iter().map(plain).collect()),
        toml::Value::Table(table) => {
            let pairs = table.iter().map(|(key, value)| (key.clone(), plain(value)));
            Value::Object(pairs.collect())
        }
    }
}

/// Returns the file as a table; it was read before without an error.
pub(crate) fn table(text: &str) -> Outcome<toml::Table> {
    text.parse()
        .map_err(|error: toml::de::Error| Failure::new("config", error.message().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{address::Address, args::Common, settings::File};

    fn shown(flags: Common, file: &str, env: &[(&str, &str)]) -> Vec<(String, Value, String)> {
        let settings = Settings {
            flags,
            file: File::default(),
            address: Address::Jsonl("/x".into()),
            beside: None,
        };
        let env = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = settings_of(&settings, &table(file).unwrap(), &env);
        let one = |setting: Setting| (setting.name, setting.value, setting.source.told());
        found.into_iter().map(one).collect()
    }

    #[test]
    fn a_flag_goes_before_the_environment_the_file_and_the_default() {
        let flags = Common {
            model: Some("flagged".into()),
            ..Common::default()
        };
        let file = "model = \"filed\"\nprovider = \"openai-chat\"\n[limits]\nrun_seconds = 9\n";
        let found = shown(flags, file, &[("THREADLINE_HOME", "/x")]);
        let has = |name: &str, value: Value, source: &str| {
            assert!(
                found.contains(&(name.to_owned(), value.clone(), source.to_owned())),
                "{name} {value} {source} in {found:?}"
            );
        };
        has("store", "jsonl:/x".into(), "THREADLINE_HOME");
        has("model", "flagged".into(), "--model");
        has("provider", "openai-chat".into(), "config.toml");
        has("approval", "on_request".into(), "default");
        has("limits.run_seconds", 9.into(), "config.toml");
        has("base_url", Value::Null, "default");
    }

    #[test]
    fn nothing_that_may_be_a_secret_is_shown() {
        let file = "base_url = \"https://me:sesame@host/v1\"\n[x.env]\nA = \"sesame\"\n\
                    [y]\napi_key = \"sesame\"\n[y.headers]\nAuthorization = \"sesame\"\n";
        let env = [
            ("OPENAI_API_KEY", "sesame"),
            ("ANTHROPIC_BASE_URL", "https://me:sesame@host"),
        ];
        let found = shown(Common::default(), file, &env);
        let text = format!("{found:?}");
        assert!(!text.contains("sesame"), "{text}");
        assert!(text.contains("me@host"), "{text}");
    }

    #[test]
    fn the_defaults_that_are_told_are_those_that_hold() {
        use threadline_agent::Defaults;
        let defaults = Defaults::new("/".into());
        let word = |value: Value| value.as_str().unwrap().to_owned();
        let approval = serde_json::to_value(defaults.approval_policy).unwrap();
        let sandbox = serde_json::to_value(defaults.sandbox_mode).unwrap();
        let told = |wanted: &str| {
            let found = NAMED.iter().find(|(name, ..)| *name == wanted);
            found.and_then(|(_, _, default)| *default).unwrap()
        };
        assert_eq!(word(approval), told("approval"));
        assert_eq!(word(sandbox), told("sandbox"));
    }
}
