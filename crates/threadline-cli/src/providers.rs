//! Which provider and model a call uses: flags, then settings, then what a session ran under, then
//! what answers on this machine, then the demonstration.

use threadline_agent::Models;
use threadline_model::{
    ConfigError, OLLAMA_URL, PROVIDERS, ProviderConfig, build, detect, key_variable,
};
use threadline_session::payload::ModelRef;

use crate::{
    failure::{Failure, Outcome},
    settings::Settings,
    ui::Ui,
};

const OFFLINE: &str = "offline";
const OPENAI_CHAT: &str = "openai-chat";
/// Providers that a key sets up, in the order in which they are tried.
const HOSTED: [&str; 3] = [OPENAI_CHAT, "openai-responses", "anthropic"];

/// The providers of this call.
pub(crate) struct Chosen {
    pub(crate) models: Models,
    /// A model that a flag names, which replaces the one that a session ran under. Settings and
    /// detection never do.
    pub(crate) named: Option<String>,
}

impl Chosen {
    /// Returns whether new sessions talk to the demonstration instead of a model.
    pub(crate) fn is_demonstration(&self) -> bool {
        self.models.default_model().provider == OFFLINE
    }
}

/// What was asked for, before anything is looked up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    provider: Option<String>,
    model: Option<String>,
}

/// Reads `PROVIDER/NAME`. Names of models hold slashes themselves, so only a known provider counts.
fn asked(provider: Option<&str>, model: Option<&str>) -> Asked {
    let (head, name) = match model.and_then(|model| model.split_once('/')) {
        Some((head, name)) if PROVIDERS.contains(&head) && !name.is_empty() => {
            (Some(head), Some(name))
        }
        _ => (None, model),
    };
    let provider = match (provider, head) {
        // `--provider a --model b/c`: the provider was said, so `b/c` is all name.
        (Some(provider), Some(head)) if provider != head => {
            return Asked {
                provider: Some(provider.into()),
                model: model.map(Into::into),
            };
        }
        (provider, head) => provider.or(head),
    };
    Asked {
        provider: provider.map(Into::into),
        model: name.map(Into::into),
    }
}

/// Chooses the providers. `recorded` is what the session to go on with ran under.
pub(crate) async fn choose(
    ui: Ui,
    settings: &Settings,
    recorded: Option<&ModelRef>,
) -> Outcome<Chosen> {
    let flags = asked(
        settings.flags.provider.as_deref(),
        settings.flags.model.as_deref(),
    );
    let file = asked(
        settings.file.provider.as_deref(),
        settings.file.model.as_deref(),
    );
    let url = settings
        .flags
        .base_url
        .as_ref()
        .or(settings.file.base_url.as_ref());
    let mut config = first_config(ui, &flags, &file, url, recorded).await?;
    if let Some(url) = url
        && config.provider != OFFLINE
    {
        config.base_url = Some(url.clone());
    }
    let from_file = file.model.filter(|_| {
        file.provider
            .as_ref()
            .is_none_or(|provider| *provider == config.provider)
    });
    let from_session = recorded
        .filter(|model| model.provider == config.provider)
        .map(|model| model.name.clone());
    let detected = config.model.take();
    config.model = flags
        .model
        .clone()
        .or(from_file)
        .or(detected)
        .or(from_session);
    tune(settings, &mut config);
    let built = build(config.clone()).map_err(config_failure)?;
    let name = config.model_name().map_err(config_failure)?.to_owned();
    require_key(&config)?;
    let provider = config.provider;
    let mut models = Models::new(built, name.clone());
    for other in PROVIDERS.iter().filter(|other| **other != provider) {
        if let Some(mut config) = usable(other) {
            tune(settings, &mut config);
            models = models.with(build(config).map_err(config_failure)?);
        }
    }
    let named = match (&flags.model, &flags.provider) {
        (Some(model), Some(provider)) => Some(format!("{provider}/{model}")),
        (Some(model), None) => Some(model.clone()),
        (None, Some(provider)) => recorded
            .filter(|recorded| recorded.provider != *provider)
            .map(|_| format!("{provider}/{name}")),
        (None, None) => None,
    };
    Ok(Chosen { models, named })
}

/// Decides the provider and takes its key and address from the environment.
async fn first_config(
    ui: Ui,
    flags: &Asked,
    file: &Asked,
    url: Option<&String>,
    recorded: Option<&ModelRef>,
) -> Outcome<ProviderConfig> {
    if let Some(provider) = flags.provider.as_ref().or(file.provider.as_ref()) {
        return Ok(from_env(provider));
    }
    if url.is_some() {
        return Ok(from_env(OPENAI_CHAT));
    }
    if recorded.is_some_and(|model| model.provider == OFFLINE) && flags.model.is_none() {
        return Ok(from_env(OFFLINE));
    }
    let recorded_provider = recorded.map(|model| model.provider.as_str());
    let known = recorded_provider.filter(|provider| PROVIDERS.contains(provider));
    if let Some(config) = known.and_then(usable) {
        return Ok(config);
    }
    let needed = recorded.is_some() || flags.model.is_some() || file.model.is_some();
    if needed && let Some(config) = HOSTED.into_iter().find_map(usable) {
        return Ok(config);
    }
    let found = detect().await;
    if found.provider != OFFLINE {
        return Ok(found);
    }
    if let Some(recorded) = recorded.filter(|model| model.provider != OFFLINE) {
        return Err(Failure::new(
            "unknown_provider",
            format!(
                "the session ran on {}/{}, and no such provider is set up: {} is not set, and \
                 nothing answers at {OLLAMA_URL}",
                recorded.provider,
                recorded.name,
                key_variable(&recorded.provider).unwrap_or("its key"),
            ),
        )
        .hint("set the key, name the address with `--base-url`, or see `threadline --help`"));
    }
    if let Some(model) = flags.model.as_ref().or(file.model.as_ref()) {
        return Err(Failure::new(
            "unknown_provider",
            format!(
                "no provider is set up for the model `{model}`: neither OPENAI_API_KEY nor \
                 ANTHROPIC_API_KEY is set, and nothing answers at {OLLAMA_URL}"
            ),
        )
        .hint("set one of the keys, or name `--provider` and `--base-url`"));
    }
    let key = HOSTED
        .into_iter()
        .find(|provider| from_env(provider).api_key.is_some());
    let key = key.map_or_else(String::new, |provider| {
        let variable = key_variable(provider).unwrap_or("a key");
        format!("\n{variable} is set: name a model to use it, e.g. `--model {provider}/NAME`.")
    });
    ui.warning(&format!(
        "nothing is configured and no Ollama answers at {OLLAMA_URL}, so this is the offline \
         demonstration, not a model. To use one, see `threadline --help`.{key}"
    ));
    Ok(found)
}

fn from_env(provider: &str) -> ProviderConfig {
    ProviderConfig::from_env(provider, |name| std::env::var(name).ok())
}

/// Returns the configuration of a provider for sessions that need it, if the environment sets it
/// up.
fn usable(provider: &str) -> Option<ProviderConfig> {
    let config = from_env(provider);
    let set_up = provider == OFFLINE || config.api_key.is_some() || config.base_url.is_some();
    set_up.then_some(config)
}

/// Applies what `config.toml` says of a provider.
fn tune(settings: &Settings, config: &mut ProviderConfig) {
    let Some(file) = settings.file.providers.get(&config.provider) else {
        return;
    };
    if config.base_url.is_none() {
        config.base_url.clone_from(&file.base_url);
    }
    config.max_output_tokens = file.max_output_tokens;
    config.thinking = file.thinking.map(Into::into);
    config.reasoning_effort.clone_from(&file.reasoning_effort);
    config.reasoning_summary.clone_from(&file.reasoning_summary);
}

fn config_failure(error: ConfigError) -> Failure {
    let text = crate::text::chain(&error);
    match error {
        ConfigError::MissingModel { .. } => Failure::new("missing_model", text)
            .hint("name one with `--model NAME`, or as `model` in config.toml"),
        _ => Failure::new("config", text).hint("see `threadline --help`"),
    }
}

/// Refuses a call that could only fail, before anything is stored.
fn require_key(config: &ProviderConfig) -> Outcome<()> {
    let Some(variable) = key_variable(&config.provider) else {
        return Ok(());
    };
    if config.api_key.is_some() || config.base_url.as_deref().is_some_and(may_be_local) {
        return Ok(());
    }
    Err(Failure::new(
        "missing_key",
        format!(
            "the provider {} needs an API key, and {variable} is not set",
            config.provider
        ),
    )
    .hint(format!(
        "set it: `export {variable}=...`; or try `--provider offline`, which needs none"
    )))
}

/// Returns whether an address may lead to this machine, where no key is needed. The provider
/// itself decides; this only spares a session that could not begin.
fn may_be_local(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.to_lowercase();
    host.starts_with("127.") || host.starts_with("[::1]") || host.contains("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_provider_is_taken_off_a_models_name() {
        let of = |provider, model| {
            let asked = asked(provider, model);
            (asked.provider, asked.model)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(None, Some("offline/m")), (some("offline"), some("m")));
        assert_eq!(of(None, Some("org/m")), (None, some("org/m")));
        assert_eq!(
            of(Some("openai-chat"), Some("offline/m")),
            (some("openai-chat"), some("offline/m"))
        );
        assert_eq!(of(Some("openai-chat"), Some("openai-chat/m")).1, some("m"));
        assert_eq!(of(Some("offline"), None), (some("offline"), None));
    }

    #[test]
    fn a_key_is_asked_for_only_where_one_is_needed() {
        let mut config = ProviderConfig::new(OPENAI_CHAT);
        assert!(
            require_key(&config)
                .unwrap_err()
                .message
                .contains("OPENAI_API_KEY")
        );
        config.base_url = Some("http://127.0.0.1:1/v1".into());
        assert!(require_key(&config).is_ok());
        config.base_url = Some("https://example.com/v1".into());
        assert!(require_key(&config).is_err());
        assert!(require_key(&ProviderConfig::new(OFFLINE)).is_ok());
    }
}
