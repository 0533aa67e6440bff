//! The MCP servers that a client passes with a session.

use std::collections::HashSet;

use agent_client_protocol_schema::v1::{Error, McpServer};
use threadline_mcp::{ServerConfig, ServerName, Servers, Transport};
use threadline_session::SessionId;

use crate::{limits::MCP_SERVERS, rpc::invalid_params};

/// Checks what a client has passed. Values of variables and headers are never repeated.
///
/// # Errors
/// Says which server is wrong, and how.
pub(crate) fn check(servers: &[McpServer]) -> Result<(), Error> {
    if servers.len() > MCP_SERVERS {
        return Err(invalid_params(&format!(
            "{} MCP servers are over the limit of {MCP_SERVERS}",
            servers.len()
        )));
    }
    let mut names = HashSet::new();
    for (server, at) in servers.iter().zip(0..) {
        let refuse = |reason: &str| invalid_params(&format!("`mcpServers[{at}]` {reason}"));
        let name = match server {
            McpServer::Stdio(server) => {
                if !server.command.is_absolute() {
                    return Err(refuse("needs an absolute path as its command"));
                }
                &server.name
            }
            McpServer::Http(server) => {
                if !server.url.starts_with("http://") && !server.url.starts_with("https://") {
                    return Err(refuse(
                        "needs an address that begins with http:// or https://",
                    ));
                }
                &server.name
            }
            McpServer::Sse(_) => return Err(refuse("uses SSE, which this agent does not speak")),
            _ => return Err(refuse("is of an unknown kind")),
        };
        if name.trim().is_empty() {
            return Err(refuse("needs a name"));
        }
        if !names.insert(name) {
            return Err(refuse("has the name of another one"));
        }
    }
    Ok(())
}

/// Gives a session the servers of its client, beside those that are configured for all. They are
/// connected to when its next turn begins. Returns what the client is told when that cannot be.
///
/// This is the one place where a client's servers meet the agent's.
pub(crate) async fn connect(
    pool: Option<&Pool>,
    session: &SessionId,
    servers: &[McpServer],
) -> Option<String> {
    if servers.is_empty() {
        return None;
    }
    let names: Vec<&str> = servers.iter().map(name).collect();
    let names = names.join(", ");
    let Some(pool) = pool else {
        return Some(format!(
            "[This agent connects to no MCP servers. Not available in this session: {names}.]"
        ));
    };
    let mut configs = pool.usual.clone();
    configs.extend(servers.iter().filter_map(config));
    let assigned = pool.servers.assign(session.clone(), configs).await;
    let error = assigned.err()?;
    Some(format!("[Not available in this session: {names}. {error}]"))
}

/// The connections of all sessions, and the servers that every session has.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The connections; the source of tools that the agents are made with.
    pub servers: Servers,
    /// What sessions have besides what their client passes.
    pub usual: Vec<ServerConfig>,
}

fn config(server: &McpServer) -> Option<ServerConfig> {
    let transport = match server {
        McpServer::Stdio(server) => Transport::Stdio {
            command: server.command.to_string_lossy().into_owned(),
            args: server.args.clone(),
            env: (server.env.iter())
                .map(|variable| (variable.name.clone(), literal(&variable.value)))
                .collect(),
            cwd: None,
        },
        McpServer::Http(server) => Transport::Http {
            url: literal(&server.url),
            headers: (server.headers.iter())
                .map(|header| (header.name.clone(), literal(&header.value)))
                .collect(),
        },
        _ => return None,
    };
    Some(ServerConfig::new(
        ServerName::from_text(name(server)),
        transport,
    ))
}

/// What a client sends stands for itself; in a configuration `${NAME}` is a variable of the agent.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn name(server: &McpServer) -> &str {
    match server {
        McpServer::Stdio(server) => &server.name,
        McpServer::Http(server) => &server.name,
        McpServer::Sse(server) => &server.name,
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn values_of_a_client_stand_for_themselves() {
        let server = json!({"name": "a b", "command": "/bin/$a", "args": ["$1"],
            "env": [{"name": "K", "value": "${HOME}"}]});
        let config = config(&serde_json::from_value(server).unwrap()).unwrap();
        let Transport::Stdio {
            command, args, env, ..
        } = config.transport
        else {
            panic!("it is a program");
        };
        assert_eq!((command.as_str(), args), ("/bin/$a", vec!["$1".to_owned()]));
        assert_eq!(env["K"], "$${HOME}");
    }

    fn checked(servers: Value) -> Result<(), Error> {
        check(&serde_json::from_value::<Vec<McpServer>>(servers).unwrap())
    }

    fn stdio(name: &str, command: &str) -> Value {
        json!({"name": name, "command": command, "args": [],
            "env": [{"name": "TOKEN", "value": "s3cret"}]})
    }

    #[test]
    fn what_is_wrong_with_a_server_is_told_without_its_values() {
        assert!(checked(json!([stdio("a", "/bin/a"), stdio("b", "/bin/b")])).is_ok());
        for wrong in [
            json!([stdio("a", "a")]),
            json!([stdio(" ", "/bin/a")]),
            json!([stdio("a", "/bin/a"), stdio("a", "/bin/b")]),
            json!([{"type": "http", "name": "h", "url": "ftp://x", "headers": []}]),
            json!([{"type": "sse", "name": "s", "url": "http://x", "headers": []}]),
        ] {
            let error = serde_json::to_string(&checked(wrong).unwrap_err()).unwrap();
            assert!(error.contains("mcpServers["), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn servers_at_the_limit_are_taken_and_one_more_is_not() {
        let some = |count: usize| {
            let servers = (0..count).map(|n| stdio(&n.to_string(), "/bin/a"));
            checked(servers.collect())
        };
        assert!(some(MCP_SERVERS).is_ok());
        assert!(some(MCP_SERVERS + 1).is_err());
    }
}
