//! How each server stands, for a person who asks.

use std::path::Path;

use futures_util::future::join_all;
use serde::Serialize;

use crate::{ServerConfig, ServerName, connection::Connection, listing::ListedTool};

/// How a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is ready.
    Connected,
    /// It cannot be used.
    Missing,
    /// It is not to be used.
    Disabled,
}

/// What is found of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its name.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// How it stands.
    pub state: Standing,
    /// Whether it is believed which of its tools only read.
    pub trust: bool,
    /// Its tools, ordered by name.
    pub tools: Vec<ReportedTool>,
    /// What is not among them and why, a sentence each.
    pub left_out: Vec<String>,
    /// Why it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last line that it said for people before it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedTool {
    /// What the model calls it.
    pub name: String,
    /// What the server calls it.
    pub server_name: String,
    /// What it does, in the server's words.
    pub description: String,
    /// Whether the server says that it only reads.
    pub read_only: bool,
}

/// Connects to all enabled servers at the same time, looks, and lets go of them again.
pub async fn survey(configs: &[ServerConfig], cwd: &Path) -> Vec<Report> {
    join_all(configs.iter().map(|config| look(config, cwd))).await
}

async fn look(config: &ServerConfig, cwd: &Path) -> Report {
    let mut report = Report::of(&config.name, config);
    if !config.enabled {
        return report;
    }
    match Connection::open(config, cwd).await {
        Ok(connection) => {
            let listing = connection.listing();
            report.state = Standing::Connected;
            report.tools = listing.tools.iter().map(ReportedTool::from).collect();
            report.left_out.clone_from(&listing.left_out);
            connection.close().await;
        }
        Err(problem) => {
            report.state = Standing::Missing;
            report.reason = Some(problem.reason);
            report.detail = problem.detail;
        }
    }
    report
}

impl Report {
    fn of(name: &ServerName, config: &ServerConfig) -> Self {
        Self {
            name: name.to_string(),
            transport: config.kind(),
            state: Standing::Disabled,
            trust: config.trust,
            tools: Vec::new(),
            left_out: Vec::new(),
            reason: None,
            detail: None,
        }
    }
}

impl From<&ListedTool> for ReportedTool {
    fn from(tool: &ListedTool) -> Self {
        Self {
            name: tool.definition.name.clone(),
            server_name: tool.name.clone(),
            description: tool.definition.description.clone(),
            read_only: tool.reads,
        }
    }
}
