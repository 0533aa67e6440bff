//! How a provider is chosen and built.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::Url;

use crate::{
    Provider,
    anthropic::Anthropic,
    http::{self, KeyHeader},
    limits,
    offline::{self, Offline},
    openai_chat::OpenAiChat,
    openai_responses::OpenAiResponses,
    provider,
};

/// Address of OpenAI's own API.
const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Address of Anthropic's own API; the routes below it name the version.
const ANTHROPIC_URL: &str = "https://api.anthropic.com";

/// How much a model of the Messages API may think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Thinking {
    /// At most about this many tokens.
    /// Source: <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>.
    Budget(u32),
    /// As much as the model finds right; for models that refuse a budget.
    /// Source: <https://docs.anthropic.com/en/docs/build-with-claude/adaptive-thinking>.
    Adaptive,
}

/// An API key; printing it shows a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key, without the white space that copying it may have added.
    #[must_use]
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    /// Returns the key itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the text with every occurrence of the key replaced.
    #[must_use]
    pub(crate) fn scrub(&self, text: String) -> String {
        // Placeholder keys such as `x` or `ollama` are words that a message may hold anyway.
        if self.0.len() < limits::MIN_SCRUBBED_BYTES || !text.contains(&self.0) {
            return text;
        }
        text.replace(&self.0, "[API key]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Everything that building a provider needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// Provider name, one of [`PROVIDERS`](crate::PROVIDERS).
    pub provider: String,
    /// Base URL instead of the provider's own, e.g. `http://127.0.0.1:11434/v1`.
    pub base_url: Option<String>,
    /// Model that new sessions use.
    pub model: Option<String>,
    /// API key.
    pub api_key: Option<Secret>,
    /// Most tokens of an answer, thinking included. Without it `anthropic` asks for
    /// [`limits::MAX_OUTPUT_TOKENS`] and `openai-responses` leaves it to the model.
    pub max_output_tokens: Option<u32>,
    /// Thinking of the `anthropic` provider; without it the model's own default.
    pub thinking: Option<Thinking>,
    /// Reasoning effort of the `openai-responses` provider, e.g. `high`; without it the model's
    /// own default.
    pub reasoning_effort: Option<String>,
    /// Which summary of the reasoning `openai-responses` asks for, e.g. `auto`; without it none,
    /// because OpenAI gives summaries only to verified organisations.
    pub reasoning_summary: Option<String>,
    /// Time to open a connection.
    pub connect_timeout: Duration,
    /// Time from the sent request to the answer's headers.
    pub first_byte_timeout: Duration,
    /// Longest silence within a stream.
    pub idle_timeout: Duration,
    /// Attempts before a call fails; at least one is made.
    pub max_attempts: u32,
    /// Upper bound of the first wait before a retry.
    pub backoff_base: Duration,
    /// Upper bound of any wait that this side chooses.
    pub backoff_cap: Duration,
}

impl ProviderConfig {
    /// Makes a configuration with the defaults of [`limits`] and neither key nor model.
    #[must_use]
    pub fn new(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            base_url: None,
            model: None,
            api_key: None,
            max_output_tokens: None,
            thinking: None,
            reasoning_effort: None,
            reasoning_summary: None,
            connect_timeout: limits::CONNECT_TIMEOUT,
            first_byte_timeout: limits::FIRST_BYTE_TIMEOUT,
            idle_timeout: limits::IDLE_TIMEOUT,
            max_attempts: limits::MAX_ATTEMPTS,
            backoff_base: limits::BACKOFF_BASE,
            backoff_cap: limits::BACKOFF_CAP,
        }
    }

    /// Makes a configuration with the key and base URL that the provider's conventional
    /// variables hold, as the given closure looks them up.
    #[must_use]
    pub fn from_env(provider: impl Into<String>, lookup: impl Fn(&str) -> Option<String>) -> Self {
        let filled = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let mut config = Self::new(provider);
        config.api_key = key_variable(&config.provider)
            .and_then(filled)
            .map(Secret::new);
        config.base_url = match config.provider.as_str() {
            "openai-chat" | "openai-responses" => filled("OPENAI_BASE_URL"),
            "anthropic" => filled("ANTHROPIC_BASE_URL"),
            _ => None,
        };
        config
    }

    /// Returns the model that new sessions use.
    ///
    /// # Errors
    /// [`ConfigError::MissingModel`] when none is set and the provider has no only one.
    pub fn model_name(&self) -> Result<&str, ConfigError> {
        match (&self.model, self.provider.as_str()) {
            (Some(model), _) if !model.trim().is_empty() => Ok(model),
            (_, "offline") => Ok(offline::MODEL),
            _ => Err(ConfigError::MissingModel {
                provider: self.provider.clone(),
            }),
        }
    }
}

/// A provider cannot be built from its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No such provider.
    #[error(
        "unknown provider `{provider}`; known: {}",
        provider::PROVIDERS.join(", ")
    )]
    UnknownProvider {
        /// The name given.
        provider: String,
    },
    /// The base URL is not one.
    #[error("the base URL `{url}` cannot be used: {reason}; example: https://api.openai.com/v1")]
    BaseUrl {
        /// The URL given, without credentials.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The key holds characters that no HTTP header may hold.
    #[error("the API key holds characters that a key cannot hold; copy it again")]
    Key,
    /// No model is chosen.
    #[error("provider `{provider}` needs a model name; pass one, e.g. `--model NAME`")]
    MissingModel {
        /// The provider.
        provider: String,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made; check the proxy and certificate settings")]
    Client {
        /// What is wrong.
        #[source]
        source: reqwest::Error,
    },
}

/// Returns the environment variable that holds a provider's key by convention.
#[must_use]
pub fn key_variable(provider: &str) -> Option<&'static str> {
    match provider {
        "openai-chat" | "openai-responses" => Some("OPENAI_API_KEY"),
        "anthropic" => Some("ANTHROPIC_API_KEY"),
        _ => None,
    }
}

/// Builds the provider that a configuration describes. Sends nothing.
///
/// A missing key is no error here: the dialect needs none, and a call says so itself.
///
/// # Errors
/// [`ConfigError`].
pub fn build(config: ProviderConfig) -> Result<Arc<dyn Provider>, ConfigError> {
    let client = |default: &str, style: KeyHeader| {
        let base = base_url(config.base_url.as_deref().unwrap_or(default))?;
        http::Client::new(base, config.clone(), style)
    };
    Ok(match config.provider.as_str() {
        "offline" => Arc::new(Offline),
        "openai-chat" => Arc::new(OpenAiChat::new(client(OPENAI_URL, KeyHeader::Bearer)?)),
        "openai-responses" => {
            let client = client(OPENAI_URL, KeyHeader::Bearer)?;
            Arc::new(OpenAiResponses::new(client, &config))
        }
        "anthropic" => {
            let client = client(ANTHROPIC_URL, KeyHeader::XApiKey)?;
            Arc::new(Anthropic::new(client, &config))
        }
        _ => {
            return Err(ConfigError::UnknownProvider {
                provider: config.provider,
            });
        }
    })
}

/// Parses a base URL and refuses what would surprise: other schemes, credentials, queries.
pub(crate) fn base_url(given: &str) -> Result<Url, ConfigError> {
    let given = given.trim();
    let refuse = |url: String, reason: &str| ConfigError::BaseUrl {
        url,
        reason: reason.to_owned(),
    };
    let url = Url::parse(given).map_err(|e| {
        let shown = if given.contains('@') { "..." } else { given };
        refuse(shown.to_owned(), &e.to_string())
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse(
            "...".into(),
            "it holds credentials; pass the key separately",
        ));
    }
    let reason = match url.scheme() {
        "http" | "https" if url.query().is_some() || url.fragment().is_some() => {
            "it holds a query or a fragment"
        }
        "http" | "https" => return Ok(url),
        _ => "it is neither http nor https",
    };
    Err(refuse(given.to_owned(), reason))
}

/// Returns whether a URL leads to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_from_the_network() {
        for (url, wanted) in [
            ("http://127.0.0.1:1/v1", true),
            ("http://127.9.9.9/v1", true),
            ("http://[::1]:8080/v1", true),
            ("http://localhost:11434/v1", true),
            ("http://LOCALHOST/v1", true),
            ("https://api.openai.com/v1", false),
            ("http://localhost.example.com/v1", false),
            ("http://10.0.0.1/v1", false),
        ] {
            assert_eq!(is_loopback(&base_url(url).unwrap()), wanted, "{url}");
        }
    }

    #[test]
    fn unusable_base_urls_are_refused_without_showing_credentials() {
        for url in [
            "",
            "api.openai.com/v1",
            "ftp://x/v1",
            "https://x/v1?a=b",
            "http://u:hunter2@x/",
        ] {
            let error = base_url(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        let mut config = ProviderConfig::new("openai-chat");
        config.api_key = Some(Secret::new(" sk-hunter2\n"));
        assert_eq!(
            config.api_key.as_ref().map(Secret::expose),
            Some("sk-hunter2")
        );
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn unknown_providers_list_the_known_ones() {
        for name in ["claude", "openai", ""] {
            let Err(error) = build(ProviderConfig::new(name)) else {
                panic!("{name} was built")
            };
            let text = error.to_string();
            assert!(
                text.contains("openai-chat, openai-responses, anthropic, offline"),
                "{text}"
            );
        }
    }

    #[test]
    fn variables_are_looked_up_by_the_caller() {
        let config = ProviderConfig::from_env("openai-chat", |name| match name {
            "OPENAI_API_KEY" => Some("sk-1".into()),
            "OPENAI_BASE_URL" => Some(" ".into()),
            _ => None,
        });
        assert_eq!(config.api_key, Some(Secret::new("sk-1")));
        assert_eq!(config.base_url, None);
        assert!(config.model_name().is_err());
        for (provider, key, url) in [
            ("openai-responses", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
            ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        ] {
            let config = ProviderConfig::from_env(provider, |name| Some(name.to_owned()));
            assert_eq!(config.api_key, Some(Secret::new(key)));
            assert_eq!(config.base_url.as_deref(), Some(url));
            assert_eq!(key_variable(provider), Some(key));
        }
        let offline = ProviderConfig::from_env("offline", |_| Some("x".into()));
        assert_eq!(offline.api_key, None);
        assert_eq!(offline.model_name().unwrap(), "demonstration");
    }
}
