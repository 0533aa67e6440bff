//! What to use when nothing is configured.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::{ProviderConfig, config, http, limits};

/// Where a local Ollama listens.
pub const OLLAMA_URL: &str = "http://127.0.0.1:11434";

/// Returns a configuration for the local Ollama if it answers in time with at least one model,
/// else one for the offline demonstration.
pub async fn detect() -> ProviderConfig {
    detect_ollama(OLLAMA_URL, limits::DETECT_TIMEOUT)
        .await
        .unwrap_or_else(|| ProviderConfig::new("offline"))
}

/// Returns a configuration for the Ollama at an address, with its first model, if it answers
/// within the given time. No key is ever sent to it.
pub async fn detect_ollama(url: &str, within: Duration) -> Option<ProviderConfig> {
    let base = config::base_url(url).ok()?;
    let mut found = ProviderConfig::new("openai-chat");
    let client = http::local_client(&base, &found)?;
    let base = base.as_str().trim_end_matches('/').to_owned();
    let ask = async {
        let mut response = client.get(format!("{base}/api/tags")).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.ok()? {
            if body.len() + piece.len() > limits::MAX_DETECT_BYTES {
                return None;
            }
            body.extend_from_slice(&piece);
        }
        first_model(&body)
    };
    let model = timeout(within, ask).await.ok().flatten()?;
    found.base_url = Some(format!("{base}/v1"));
    found.model = Some(model);
    Some(found)
}

fn first_model(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value
        .get("models")?
        .as_array()?
        .iter()
        .find_map(|model| model.get("name").or_else(|| model.get("model"))?.as_str())
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
}
