//! Every provider after every other one, and back: whatever the history, requests are valid.

use std::sync::Arc;

use serde_json::{Value, json};
use threadline_model::{Images, Provider, Thinking, build};
use threadline_session::{
    Event, HistoryItem, OsPath, Payload, Request, RunId, Transcript, normalise,
    payload::{
        ApprovalPolicy, AssistantMessage, AssistantPart, ContentPart, ModelRef, Opaque, Outcome,
        SandboxMode, StopReason, ToolResult, TurnContext, TurnStart, UserMessage, UserSource,
    },
};
use threadline_strict_model::{Reply, Step, StrictModel};

use crate::support::{ONLINE, config_of, drain, request_of, text, user};

/// A tiny but real PNG head; nobody decodes more of it.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// What one model of one provider needs.
pub(crate) struct Seat {
    pub(crate) provider: Arc<dyn Provider>,
    model: &'static str,
}

/// A session as far as providers see it.
pub(crate) struct Talk {
    pub(crate) server: StrictModel,
    pub(crate) items: Vec<HistoryItem>,
    pub(crate) images: Images,
}

impl Talk {
    pub(crate) async fn new() -> Self {
        let mut images = Images::default();
        images.insert("ab", PNG);
        Self {
            server: StrictModel::start([]).await.unwrap(),
            items: Vec::new(),
            images,
        }
    }

    pub(crate) fn seat(
        &self,
        provider: &str,
        model: &'static str,
        thinking: Option<Thinking>,
    ) -> Seat {
        let mut config = config_of(provider, &self.server.base_url());
        config.thinking = thinking;
        Seat {
            provider: build(config).unwrap(),
            model,
        }
    }

    /// Makes the request as a session does: logged, read again and normalised.
    pub(crate) fn request(&self, seat: &Seat) -> Request {
        let target = ModelRef {
            provider: seat.provider.name().into(),
            name: seat.model.into(),
        };
        let mut log = Transcript::new();
        for (seq, payload) in (0..).zip(logged(&self.items)) {
            log.apply(&Event::new(seq, 0, &payload).unwrap()).unwrap();
        }
        let (items, report) = normalise(&log, &target);
        assert_eq!(report.missing_results + report.orphan_results, 0);
        let mut request = request_of(seat.provider.name(), items);
        request.model = seat.model.into();
        request
    }

    /// Asks the seat, checks that it was sent back what is its own and nothing else, and adds the
    /// answer with a good and a bad result. Returns the body that was sent.
    async fn step(&mut self, seat: &Seat, reply: Reply) -> Value {
        self.server.push(reply);
        let request = self.request(seat);
        let own: Vec<Opaque> = opaque(&request.items);
        let stream = seat.provider.stream_with(request.clone(), &self.images);
        let outcome = drain(stream).await;
        self.server.assert_no_violations();
        let done = outcome.end.unwrap();
        let sent = self.server.requests().pop().unwrap();
        let body = String::from_utf8(sent.body.to_vec()).unwrap();
        assert_eq!(
            sent.json,
            seat.provider.body_with(&request, &self.images),
            "what is shown is what was sent"
        );
        for item in own.iter().filter(|item| item.data.contains("gAAAAAB")) {
            assert!(body.contains(&item.data), "not byte for byte: {item:?}");
        }
        let seals = own.iter().filter(|item| item.data.contains("gAAAAAB"));
        assert_eq!(body.matches("gAAAAAB").count(), seals.count(), "{body}");
        let calls: Vec<String> = done
            .content
            .iter()
            .filter_map(|part| match part {
                AssistantPart::ToolCall { call_id, .. } => Some(call_id.clone()),
                _ => None,
            })
            .collect();
        self.items.push(HistoryItem::Assistant {
            content: done.content,
            opaque: done.opaque,
        });
        for (n, call_id) in calls.into_iter().enumerate() {
            let image = ContentPart::Image {
                media_type: "image/png".into(),
                blob: "ab".into(),
            };
            self.items.push(HistoryItem::Tool {
                call_id,
                name: "shell".into(),
                content: vec![ContentPart::text(format!("out {n}")), image],
                is_error: n == 1,
            });
        }
        sent.json
    }

    /// A turn of two steps: thinking, two calls at once, thinking again, an answer.
    async fn turn(&mut self, seat: &Seat, name: &str) -> Vec<Value> {
        self.items.push(HistoryItem::User {
            content: vec![
                ContentPart::text(format!("look at {name}")),
                ContentPart::Image {
                    media_type: "image/png".into(),
                    blob: "ab".into(),
                },
            ],
        });
        let first = self.step(seat, looks(seat.provider.name())).await;
        let last = self.step(seat, answers()).await;
        vec![first, last]
    }
}

/// The items as the events of one long turn.
fn logged(items: &[HistoryItem]) -> Vec<Payload> {
    let context = TurnContext {
        confined: false,
        provider: "p".into(),
        model: "m".into(),
        approval_policy: ApprovalPolicy::Never,
        sandbox_mode: SandboxMode::ReadOnly,
        cwd: OsPath::from("/"),
        temperature: None,
        max_steps: None,
    };
    let mut log = vec![Payload::TurnStart(TurnStart {
        turn: 1,
        run_id: RunId::parse("r").unwrap(),
        context,
    })];
    let mut step = 0;
    for item in items.iter().cloned() {
        log.push(match item {
            HistoryItem::User { content } => Payload::UserMessage(UserMessage {
                content,
                source: UserSource::User,
            }),
            HistoryItem::Assistant { content, opaque } => {
                step += 1;
                Payload::AssistantMessage(AssistantMessage {
                    turn: 1,
                    step,
                    content,
                    model: ModelRef {
                        provider: "p".into(),
                        name: "m".into(),
                    },
                    stop_reason: StopReason::Stop,
                    usage: None,
                    opaque,
                    interrupted: false,
                })
            }
            HistoryItem::Tool {
                call_id,
                name,
                content,
                is_error,
            } => Payload::ToolResult(ToolResult {
                call_id,
                name,
                content,
                is_error,
                outcome: if is_error {
                    Outcome::Error
                } else {
                    Outcome::Ok
                },
                full: None,
                synthetic: false,
            }),
        });
    }
    log
}

fn opaque(items: &[HistoryItem]) -> Vec<Opaque> {
    let of = |item: &HistoryItem| match item {
        HistoryItem::Assistant { opaque, .. } => opaque.clone(),
        _ => Vec::new(),
    };
    items.iter().flat_map(of).collect()
}

/// Thinks, speaks, thinks again and calls two tools. The ids repeat in every turn, and those of
/// OpenAI's dialects fit no other provider.
fn looks(provider: &str) -> Reply {
    let id = |n: usize| match provider {
        "anthropic" => format!("toolu_{n}"),
        _ => format!("functions.shell:{n}"),
    };
    Reply::default()
        .and_reasoning("first ")
        .and_reasoning("thought \u{1f600}")
        .and_text("Let me look.")
        .and_reasoning("second thought")
        // The normaliser leaves blank texts out; what stands around them keeps its place.
        .step(Step::Text("\n\n".into()))
        .step(Step::Redacted("secret".into()))
        .and_call(id(0), "shell", json!({"command": "ls \"x\""}))
        .and_call(id(1), "shell", json!({"n": 1.5}))
}

fn answers() -> Reply {
    Reply::default()
        .and_reasoning("done")
        .and_text("All is well.")
}

#[tokio::test]
async fn every_provider_after_every_other_and_back() {
    for thinking in [None, Some(Thinking::Budget(2000)), Some(Thinking::Adaptive)] {
        for one in ONLINE {
            for two in ONLINE {
                let mut talk = Talk::new().await;
                let first = talk.seat(one, "m-1", thinking);
                let second = talk.seat(two, "m-2", thinking);
                talk.turn(&first, "a").await;
                talk.turn(&second, "b").await;
                let back = talk.turn(&first, "c").await;
                let sealed = back[1].to_string().matches("gAAAAAB").count();
                // Of the first turn's first step, of its second, and of this turn's first.
                let wanted = match one {
                    "anthropic" => 3 + 1 + 3,
                    // One piece led to the blank text and goes with it.
                    "openai-responses" => 2 + 1 + 2,
                    _ => 0,
                };
                assert_eq!(sealed, wanted, "{one} after {two}");
                talk.server.stop().await;
            }
        }
    }
}

#[tokio::test]
async fn a_turn_may_go_on_with_another_provider() {
    for thinking in [None, Some(Thinking::Budget(2000)), Some(Thinking::Adaptive)] {
        for one in ONLINE {
            for two in ONLINE {
                let mut talk = Talk::new().await;
                let first = talk.seat(one, "m-1", thinking);
                let second = talk.seat(two, "m-2", thinking);
                talk.items.push(user("look"));
                talk.step(&first, looks(one)).await;
                talk.step(&second, looks(two)).await;
                talk.step(&first, looks(one)).await;
                // Steered in the middle of tool use.
                talk.items.push(user("and there"));
                talk.step(&second, looks(two)).await;
                talk.step(&first, answers()).await;
                talk.server.stop().await;
            }
        }
    }
}

#[tokio::test]
async fn another_model_of_the_same_provider_gets_nothing_opaque() {
    for name in ["openai-responses", "anthropic"] {
        let mut talk = Talk::new().await;
        let (one, two) = (talk.seat(name, "m-1", None), talk.seat(name, "m-2", None));
        talk.turn(&one, "a").await;
        let sent = talk.turn(&two, "b").await;
        assert!(!sent[0].to_string().contains("gAAAAAB"), "{name}");
        assert!(sent[1].to_string().contains("gAAAAAB"), "{name}");
        assert!(opaque(&talk.items).len() > 8, "all of it stays in the log");
    }
}

#[tokio::test]
async fn thinking_waits_for_the_next_turn_when_another_began_this_one() {
    let mut talk = Talk::new().await;
    let chat = talk.seat("openai-chat", "m-1", None);
    let claude = talk.seat("anthropic", "m-2", Some(Thinking::Budget(2000)));
    talk.items.push(user("look"));
    talk.step(&chat, looks("openai-chat")).await;
    let sent = talk.step(&claude, Reply::text("Done.")).await;
    assert_eq!(sent["thinking"], json!({"type": "disabled"}));
    let sent = talk.turn(&claude, "b").await;
    let wanted = json!({"type": "enabled", "budget_tokens": 2000});
    assert_eq!(
        (&sent[0]["thinking"], &sent[1]["thinking"]),
        (&wanted, &wanted)
    );
    assert_eq!(sent[0]["max_tokens"], 32_000);
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_no_hindrance() {
    for one in ONLINE {
        for two in ONLINE {
            let mut talk = Talk::new().await;
            let first = talk.seat(one, "m-1", None);
            let second = talk.seat(two, "m-2", None);
            talk.turn(&first, "a").await;
            // As recovery leaves it: reasoning and half a text, nothing opaque.
            talk.items.push(user("more"));
            talk.items.push(HistoryItem::Assistant {
                content: vec![
                    AssistantPart::Reasoning { text: "hm".into() },
                    text("half an ans"),
                ],
                opaque: Vec::new(),
            });
            talk.turn(&second, "b").await;
            talk.turn(&first, "c").await;
        }
    }
}

#[tokio::test]
async fn histories_without_a_beginning_or_an_end_are_made_whole() {
    let said = || HistoryItem::Assistant {
        content: vec![text("x")],
        opaque: Vec::new(),
    };
    for name in ONLINE {
        for items in [
            vec![said(), user("a")],
            vec![user("a"), said(), said(), user("b")],
            vec![user("a"), said()],
            vec![user("a"), user("b"), user("c")],
        ] {
            let mut talk = Talk::new().await;
            talk.items = items;
            let seat = talk.seat(name, "m", None);
            talk.step(&seat, Reply::text("ok")).await;
        }
    }
}

#[tokio::test]
async fn what_was_said_before_is_read_from_the_cache() {
    for name in ONLINE {
        let mut talk = Talk::new().await;
        let seat = talk.seat(name, "m", None);
        let mut before = 0;
        for turn in 0..3 {
            talk.items.push(user("tell me more of the same"));
            let request = talk.request(&seat);
            let done = drain(seat.provider.stream(request)).await.end.unwrap();
            let usage = done.usage.unwrap();
            let cached = usage.cached_input_tokens.unwrap();
            // All of the request before, but for the token in which it ended.
            assert!(cached + 1 >= before, "{name}: {usage:?} after {before}");
            assert!(cached < usage.input_tokens, "{name}: {usage:?}");
            assert_eq!(cached == 0, turn == 0, "{name}: {usage:?}");
            before = usage.input_tokens;
            talk.items.push(HistoryItem::Assistant {
                content: done.content,
                opaque: done.opaque,
            });
        }
    }
}
