//! What a server says its tools are, bounded and in an order of its own.

use serde_json::Value;
use threadline_session::payload::ToolDefinition;

use crate::{
    ServerConfig,
    limits::{
        DESCRIPTION_BYTES, LEFT_OUT, SCHEMA_BYTES, SERVER_BYTES, SERVER_TOOL_NAME_BYTES, TOOLS,
    },
    names,
    problem::{block, short},
};

/// The tools of one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Listing {
    /// Ordered by what the model is told they are called.
    pub(crate) tools: Vec<ListedTool>,
    /// What is not among them, a sentence each.
    pub(crate) left_out: Vec<String>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedTool {
    /// What the server calls it.
    pub(crate) name: String,
    /// What the model is told.
    pub(crate) definition: ToolDefinition,
    /// Whether it says that it only reads.
    pub(crate) reads: bool,
}

impl ListedTool {
    fn bytes(&self) -> usize {
        // It is made of text and JSON, so it can be written.
        serde_json::to_string(&self.definition).map_or(0, |text| text.len())
    }
}

/// Reads the items of a server's list.
pub(crate) fn read(config: &ServerConfig, items: Vec<Value>) -> Listing {
    let mut listing = Listing::default();
    let mut found: Vec<(String, Value)> = Vec::new();
    for item in items {
        match item.get("name").and_then(Value::as_str) {
            Some(name) if name.len() <= SERVER_TOOL_NAME_BYTES => {
                found.push((name.to_owned(), item));
            }
            Some(name) => {
                let problem = format!("its name has more than {SERVER_TOOL_NAME_BYTES} bytes");
                listing.leave_out(name, &problem);
            }
            None => listing.leave_out("", "it has no name"),
        }
    }
    if let Some(wanted) = &config.tools {
        for name in wanted {
            if !found.iter().any(|(found, _)| found == name) {
                listing.leave_out(name, "the server has no such tool");
            }
        }
        found.retain(|(name, _)| wanted.contains(name));
    }
    // Which of two is left out must not depend on the order in which they come.
    found.sort_by_cached_key(|(name, item)| (name.clone(), item.to_string()));
    found.dedup_by(|later, first| {
        let twin = later.0 == first.0;
        if twin {
            listing.leave_out(&later.0, "another one has the same name");
        }
        twin
    });
    found.retain(|(name, item)| match problem(item) {
        Some(problem) => {
            listing.leave_out(name, &problem);
            false
        }
        None => true,
    });
    if found.len() > TOOLS {
        let more = found.len() - TOOLS;
        found.truncate(TOOLS);
        listing.left_out.push(format!(
            "{more} tools are left out: {TOOLS} of one server are the most"
        ));
    }
    let told = names::tools(&config.name, found.iter().map(|(name, _)| name.as_str()));
    listing.tools = found
        .iter()
        .filter_map(|(name, item)| Some(tool(told.get(name.as_str())?, name, item)))
        .collect();
    listing
        .tools
        .sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
    listing.bound();
    listing.left_out.sort();
    if listing.left_out.len() > LEFT_OUT {
        let more = listing.left_out.len() - LEFT_OUT;
        listing.left_out.truncate(LEFT_OUT);
        listing
            .left_out
            .push(format!("{more} more tools are left out"));
    }
    listing
}

impl Listing {
    /// Returns the bytes of all definitions.
    pub(crate) fn bytes(&self) -> usize {
        self.tools.iter().map(ListedTool::bytes).sum()
    }

    /// Leaves out what is too much, the last tools first.
    fn bound(&mut self) {
        let mut bytes = self.bytes();
        let mut over = 0;
        while bytes > SERVER_BYTES
            && let Some(tool) = self.tools.pop()
        {
            bytes -= tool.bytes();
            over += 1;
        }
        if over > 0 {
            self.left_out.push(format!(
                "{over} tools are left out: all of a server have {SERVER_BYTES} bytes at most"
            ));
        }
    }

    fn leave_out(&mut self, name: &str, problem: &str) {
        self.left_out
            .push(format!("tool `{}` is left out: {problem}", short(name)));
    }
}

fn problem(item: &Value) -> Option<String> {
    match item.get("inputSchema") {
        Some(schema @ Value::Object(_)) => (schema.to_string().len() > SCHEMA_BYTES)
            .then(|| format!("the schema of its arguments has more than {SCHEMA_BYTES} bytes")),
        Some(_) => Some("the schema of its arguments is no object".into()),
        None => Some("it has no schema of its arguments".into()),
    }
}

fn tool(told: &str, name: &str, item: &Value) -> ListedTool {
    let text = |field: &str| item.get(field).and_then(Value::as_str);
    let description = text("description")
        .or_else(|| text("title"))
        .unwrap_or_default();
    ListedTool {
        name: name.to_owned(),
        definition: ToolDefinition {
            name: told.to_owned(),
            description: block(description, DESCRIPTION_BYTES),
            parameters: item.get("inputSchema").cloned().unwrap_or_default(),
        },
        reads: item.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ServerName, Transport};

    fn config() -> ServerConfig {
        let transport = Transport::Http {
            url: "http://127.0.0.1".into(),
            headers: [].into(),
        };
        ServerConfig::new(ServerName::parse("s").unwrap(), transport)
    }

    fn named(name: &str) -> Value {
        json!({ "name": name, "description": "d", "inputSchema": { "type": "object" } })
    }

    #[test]
    fn equal_tools_make_equal_lists_whatever_their_order() {
        let twin = json!({ "name": "a", "description": "other", "inputSchema": {} });
        let mut items = vec![
            named("b"),
            named("a"),
            named("c.d"),
            twin,
            json!({ "x": 1 }),
        ];
        let listing = read(&config(), items.clone());
        let names: Vec<_> = listing
            .tools
            .iter()
            .map(|t| t.definition.name.as_str())
            .collect();
        assert_eq!(&names[..2], ["mcp__s__a", "mcp__s__b"]);
        assert!(names[2].starts_with("mcp__s__c_d_"));
        assert_eq!(listing.left_out.len(), 2, "{listing:?}");
        items.reverse();
        assert_eq!(read(&config(), items), listing);
    }

    #[test]
    fn a_schema_that_is_no_object_or_too_large_is_refused_with_a_sentence() {
        let with = |name: &str, schema: Value| json!({ "name": name, "inputSchema": schema });
        let sized = |bytes: usize| {
            let frame = json!({ "d": "" }).to_string().len();
            json!({ "d": "x".repeat(bytes - frame) })
        };
        let listing = read(
            &config(),
            vec![
                with("array", json!([])),
                with("over", sized(SCHEMA_BYTES + 1)),
                with("at", sized(SCHEMA_BYTES)),
                json!({ "name": "none" }),
            ],
        );
        let names: Vec<_> = listing
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(names, ["at"]);
        let all = listing.left_out.join("\n");
        for part in [
            "`array` is left out: the schema of its arguments is no object",
            "`over`",
            "`none`",
        ] {
            assert!(all.contains(part), "{all}");
        }
    }

    #[test]
    fn only_the_tools_that_are_named_are_used_and_one_that_is_not_there_is_told() {
        let mut config = config();
        config.tools = Some(["a".into(), "gone".into()].into());
        let listing = read(&config, vec![named("a"), named("b")]);
        assert_eq!(listing.tools.len(), 1);
        assert_eq!(listing.left_out.len(), 1);
        assert!(listing.left_out[0].contains("`gone`"));
    }

    #[test]
    fn all_tools_of_a_server_together_are_bounded() {
        let wide = |n: usize| {
            json!({
                "name": format!("t{n:02}"),
                "inputSchema": { "d": "x".repeat(SCHEMA_BYTES - 200) },
            })
        };
        let listing = read(&config(), (0..20).map(wide).collect());
        assert!(listing.bytes() <= SERVER_BYTES && listing.bytes() + SCHEMA_BYTES > SERVER_BYTES);
        assert_eq!(listing.tools.len(), 4);
        assert!(
            listing.left_out[0].starts_with("16 tools"),
            "{:?}",
            listing.left_out
        );
        let nameless = (0..LEFT_OUT + 5).map(|n| json!({ "x": n })).collect();
        let listing = read(&config(), nameless);
        assert_eq!(listing.left_out.len(), LEFT_OUT + 1);
    }

    #[test]
    fn one_tool_past_the_limit_is_left_out() {
        let items = |count: usize| (0..count).map(|n| named(&format!("t{n:03}"))).collect();
        assert!(read(&config(), items(TOOLS)).left_out.is_empty());
        let listing = read(&config(), items(TOOLS + 1));
        assert_eq!((listing.tools.len(), listing.left_out.len()), (TOOLS, 1));
    }
}
