//! `threadline mcp`: the servers whose tools sessions have.

use serde_json::json;
use threadline_mcp::{Report, Standing, survey};

use crate::{
    args::McpList,
    failure::{Exit, Outcome},
    run::working_directory,
    settings::{self, Settings},
    text,
    ui::{Tone, Ui},
};

/// Characters of a tool's description that people are shown.
const DESCRIPTION: usize = 80;

/// Connects to each server and tells how it stands.
pub(crate) async fn mcp_list(ui: Ui, settings: &Settings, args: McpList) -> Outcome<Exit> {
    let servers = settings.servers()?;
    let cwd = working_directory(args.cwd.as_deref())?;
    let reports = survey(&servers, &cwd).await;
    if args.json {
        ui.json(&json!({ "servers": reports }))?;
        return Ok(Exit::Completed);
    }
    if reports.is_empty() {
        let place = settings::own_config_path().map_or_else(
            || "config.toml".to_owned(),
            |path| path.display().to_string(),
        );
        ui.note(&format!(
            "No MCP servers are configured. Add one to {place}:\n\n  [mcp.NAME]\n  command = \"PROGRAM\""
        ));
    }
    for report in &reports {
        show(ui, report)?;
    }
    Ok(Exit::Completed)
}

fn show(ui: Ui, report: &Report) -> Outcome<()> {
    let (tone, state) = match report.state {
        Standing::Connected => (Tone::Good, "connected"),
        Standing::Missing => (Tone::Bad, "missing"),
        Standing::Disabled => (Tone::Faint, "disabled"),
    };
    let name = ui.out(Tone::Strong, &report.name);
    let state = ui.out(tone, state);
    let mut line = format!("{name}  {}  {state}", report.transport);
    if report.state == Standing::Connected {
        line.push_str(&format!(
            "  {}",
            text::count(report.tools.len() as u64, "tool", "tools")
        ));
    }
    if let Some(reason) = &report.reason {
        line.push_str(&format!(": {}", ui.foreign(reason)));
    }
    ui.line(&line)?;
    if let Some(detail) = &report.detail {
        ui.line(&format!("  it said: {}", ui.foreign(detail)))?;
    }
    for tool in &report.tools {
        let mut line = format!("  {}", tool.name);
        if tool.read_only {
            line.push_str("  [reads]");
        }
        let about = text::line(&tool.description, DESCRIPTION);
        if !about.is_empty() {
            line.push_str(&format!("  {}", ui.out(Tone::Faint, &ui.foreign(&about))));
        }
        ui.line(&line)?;
    }
    for sentence in &report.left_out {
        ui.line(&format!("  {}", ui.foreign(sentence)))?;
    }
    Ok(())
}
