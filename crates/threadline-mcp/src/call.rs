//! A tool of a server, and one call of it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use rmcp::{
    model::{CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject},
    service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError},
};
use serde_json::Value;
use threadline_agent::tools::{Effect, Tool, ToolContext, ToolOutput};
use threadline_session::payload::{Outcome, OutputStream, ToolDefinition};

use crate::{
    ServerName,
    connection::{Connection, said},
    http::{self, Way},
    limits::{CANCEL_TIME, PROGRESS_ALL_BYTES},
    listing::ListedTool,
    result,
    server::Server,
};

/// A tool of a server.
pub(crate) struct McpTool {
    pub(crate) server: Arc<Server>,
    pub(crate) tool: ListedTool,
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpTool")
            .field(&self.tool.definition.name)
            .finish()
    }
}

#[async_trait]
impl Tool for McpTool {
    fn definition(&self) -> ToolDefinition {
        self.tool.definition.clone()
    }

    /// What a server says of its tools is believed only of one that the person trusts.
    fn effect(&self, _: &Value) -> Effect {
        if self.server.config.trust && self.tool.reads {
            Effect::ReadOnly
        } else {
            Effect::Executes
        }
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let Value::Object(arguments) = arguments else {
            return ToolOutput::error("the arguments of a tool are a JSON object");
        };
        // Boxed: it holds a whole handshake.
        Box::pin(self.call(arguments, ctx)).await
    }
}

impl McpTool {
    fn name(&self) -> &ServerName {
        &self.server.config.name
    }

    async fn call(&self, arguments: &JsonObject, ctx: &ToolContext) -> ToolOutput {
        let mut tries = 0;
        let (connection, handle) = loop {
            let connection = tokio::select! {
                biased;
                () = ctx.cancel.cancelled() => return ToolOutput::cancelled(),
                connection = self.server.connection(&ctx.cwd) => connection,
            };
            let connection = match connection {
                Ok(connection) => connection,
                Err(problem) => return self.missing(&problem.reason),
            };
            let params = CallToolRequestParams::new(self.tool.name.clone())
                .with_arguments(arguments.clone());
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
            let options = PeerRequestOptions::no_options();
            match connection
                .peer()
                .send_cancellable_request(request, options)
                .await
            {
                Ok(handle) => break (connection, handle),
                // It broke between the look and the call, and nothing was sent.
                Err(_) if tries == 0 => tries += 1,
                Err(_) => return self.missing("the connection breaks"),
            }
        };
        self.wait(&connection, handle, ctx).await
    }

    async fn wait(
        &self,
        connection: &Connection,
        mut handle: RequestHandle<RoleClient>,
        ctx: &ToolContext,
    ) -> ToolOutput {
        let mut notes = connection.routes.of(&handle.progress_token);
        let mut room = PROGRESS_ALL_BYTES;
        let limit = self.server.config.timeout;
        let deadline = tokio::time::Instant::now() + limit;
        let answered = loop {
            tokio::select! {
                biased;
                () = ctx.cancel.cancelled() => {
                    tell_cancelled(handle, "the run was stopped");
                    return ToolOutput::new(
                        Outcome::Cancelled,
                        "cancelled; the server was told, and may have done a part of its work",
                    );
                }
                () = tokio::time::sleep_until(deadline) => {
                    tell_cancelled(handle, "the time of the call is over");
                    return ToolOutput::new(
                        Outcome::Timeout,
                        format!(
                            "the MCP server `{}` did not answer within {} s; it was told to stop, \
                             and may have done a part of its work",
                            self.name(),
                            limit.as_secs_f64()
                        ),
                    );
                }
                answered = &mut handle.rx => break answered,
                // Last, so that a server that says a lot holds up nothing.
                Some(note) = notes.next() => show(ctx, note, &mut room).await,
            }
        };
        while let Some(note) = notes.at_hand() {
            show(ctx, note, &mut room).await;
        }
        match answered {
            Ok(Ok(answer)) => match serde_json::to_value(answer) {
                Ok(answer) => result::output(answer, ctx.session.as_ref()).await,
                Err(error) => self.unknown(&format!("its answer cannot be read: {error}")),
            },
            Ok(Err(error)) => self.failed(connection, error),
            Err(_) => self.died(connection),
        }
    }

    fn failed(&self, connection: &Connection, error: ServiceError) -> ToolOutput {
        match error {
            ServiceError::McpError(error) => ToolOutput::error(format!(
                "the MCP server `{}` answered with {}",
                self.name(),
                said(&error)
            )),
            ServiceError::TransportSend(error) => match http::way(error.error.as_ref()) {
                Way::NotSent => self.missing("it cannot be reached"),
                Way::Refused(how) => ToolOutput::error(format!(
                    "the MCP server `{}` refused the call: {how}",
                    self.name()
                )),
                Way::Broken => self.died(connection),
                Way::Unknown => self.unknown("its answer cannot be read"),
            },
            ServiceError::UnexpectedResponse => self.unknown("its answer cannot be read"),
            _ => self.died(connection),
        }
    }

    /// Nothing was sent.
    fn missing(&self, reason: &str) -> ToolOutput {
        ToolOutput::error(format!(
            "the MCP server `{}` is missing, and the call was not sent to it: {reason}",
            self.name()
        ))
    }

    fn died(&self, connection: &Connection) -> ToolOutput {
        let how = connection.ended().unwrap_or("the connection to it broke");
        self.unknown(&format!("{how} while the call ran"))
    }

    /// The call was sent, and nobody knows what came of it.
    fn unknown(&self, how: &str) -> ToolOutput {
        ToolOutput::new(
            Outcome::Unknown,
            format!(
                "the outcome of the call is unknown: of the MCP server `{}`, {how}; check what it \
                 did before you repeat it",
                self.name()
            ),
        )
    }
}

/// Tells the server without waiting for it: it may not even listen.
fn tell_cancelled(handle: RequestHandle<RoleClient>, reason: &'static str) {
    tokio::spawn(async move {
        let told = handle.cancel(Some(reason.to_owned()));
        if !matches!(tokio::time::timeout(CANCEL_TIME, told).await, Ok(Ok(()))) {
            tracing::debug!("a server could not be told that a call is cancelled");
        }
    });
}

/// Shows a note about progress, as long as there is room for it.
async fn show(ctx: &ToolContext, note: String, room: &mut usize) {
    let Some(left) = room.checked_sub(note.len()) else {
        return;
    };
    *room = left;
    if let Some(output) = &ctx.output {
        // Nobody has to listen.
        let _ = output.send((OutputStream::Stdout, note)).await;
    }
}
