//! Following a session: every event once, whatever happens to the connection.

use serde_json::{Value, json};

use crate::support::{Message, Server};

/// What a page holds, changed as the wire says.
#[derive(Default)]
pub(crate) struct Copy {
    pub(crate) last_seq: Option<u64>,
    last_view: Option<u64>,
    pub(crate) turns: Vec<Value>,
    pub(crate) status: String,
    pub(crate) running: bool,
    pub(crate) seqs: Vec<u64>,
    views: Vec<u64>,
}

impl Copy {
    pub(crate) fn from_turns(reply: &Value) -> Self {
        let last = reply["lastSeq"].as_u64();
        Self {
            last_seq: last,
            last_view: last,
            turns: reply["turns"].as_array().unwrap().clone(),
            status: reply["status"].as_str().unwrap().to_owned(),
            running: reply["running"].as_bool().unwrap(),
            ..Self::default()
        }
    }

    /// Takes a message; returns whether it was a log event or a view.
    pub(crate) fn take(&mut self, message: &Message) -> bool {
        if let Some(seq) = message.id {
            if self.last_seq.is_none_or(|last| seq > last) {
                let next = self.last_seq.map_or(0, |last| last + 1);
                assert_eq!(seq, next, "a gap");
                self.last_seq = Some(seq);
                self.seqs.push(seq);
            }
            return true;
        }
        if message.event != "view" {
            return false;
        }
        let view = message.json();
        let seq = view["seq"].as_u64().unwrap();
        if self.last_view.is_none_or(|last| seq > last) {
            assert!(seq <= self.last_seq.map_or(0, |last| last + 1), "a gap");
            self.last_view = Some(seq);
            self.views.push(seq);
            for patch in view["patches"].as_array().unwrap() {
                self.apply(patch);
            }
        }
        true
    }

    fn apply(&mut self, patch: &Value) {
        match patch["op"].as_str().unwrap() {
            "status" => {
                self.status = patch["status"].as_str().unwrap().to_owned();
                self.running = patch["running"].as_bool().unwrap();
            }
            "turn" => {
                let head = patch["turn"].clone();
                let known = self
                    .turns
                    .iter_mut()
                    .find(|turn| turn["turn"] == head["turn"]);
                match known {
                    Some(turn) => {
                        for (key, value) in head.as_object().unwrap() {
                            turn[key] = value.clone();
                        }
                    }
                    None => {
                        let mut turn = head;
                        turn["items"] = json!([]);
                        self.turns.push(turn);
                    }
                }
            }
            "item" => {
                let items = self.items(&patch["turn"]);
                let item = patch["item"].clone();
                match items.iter_mut().find(|known| known["id"] == item["id"]) {
                    Some(known) => *known = item,
                    None => items.push(item),
                }
            }
            "append" => {
                let items = self.items(&patch["turn"]);
                let item = items
                    .iter_mut()
                    .find(|known| known["id"] == patch["id"])
                    .unwrap();
                let text = patch["text"].as_str().unwrap();
                let target = if patch["kind"] == "output" {
                    &mut item["output"]
                } else {
                    let part = usize::try_from(patch["part"].as_u64().unwrap()).unwrap();
                    let parts = item["parts"].as_array_mut().unwrap();
                    while parts.len() <= part {
                        parts.push(json!({"kind": patch["kind"], "text": ""}));
                    }
                    &mut parts[part]["text"]
                };
                *target = json!(format!("{}{text}", target.as_str().unwrap()));
            }
            other => panic!("unknown patch {other}"),
        }
    }

    fn items(&mut self, turn: &Value) -> &mut Vec<Value> {
        let turn = self
            .turns
            .iter_mut()
            .find(|known| known["turn"] == *turn)
            .unwrap();
        turn["items"].as_array_mut().unwrap()
    }

    pub(crate) async fn assert_current(&self, server: &Server, id: &str) {
        let turns = server
            .get(&format!("/api/agent/sessions/{id}/turns"))
            .await
            .json();
        assert_eq!(json!(self.turns), turns["turns"]);
        assert_eq!(self.status, turns["status"].as_str().unwrap());
        assert_eq!(self.running, turns["running"].as_bool().unwrap());
        assert_eq!(
            self.last_seq.map_or(-1, |seq| seq as i64),
            turns["lastSeq"].as_i64().unwrap()
        );
    }

    fn cursor(&self) -> Option<String> {
        self.last_seq.map(|seq| seq.to_string())
    }
}

async fn conversation(server: &Server) -> String {
    let first = server
        .run(&json!({"task": "$ echo one", "approvalPolicy": "never"}))
        .await;
    let id = first.session();
    server
        .run(&json!({"task": "and two", "sessionId": id}))
        .await;
    id
}

#[tokio::test]
async fn the_backlog_comes_whole_then_caught_up_then_live() {
    let server = Server::start().await;
    let id = conversation(&server).await;
    let log = server
        .get(&format!("/api/agent/sessions/{id}/log"))
        .await
        .json();
    let count = log["lines"].as_array().unwrap().len() as u64;
    let mut events = server.follow(&id, "view=1", None).await;
    assert_eq!(events.block().await.unwrap(), "retry: 1000");
    let mut copy = Copy::default();
    loop {
        let message = events.next().await.unwrap();
        if message.event == "caught_up" {
            assert_eq!(message.json()["seq"], count - 1);
            break;
        }
        copy.take(&message);
    }
    assert_eq!(copy.seqs, (0..count).collect::<Vec<_>>());
    copy.assert_current(&server, &id).await;

    // It goes on across runs.
    for task in ["three", "four"] {
        server.run(&json!({"task": task, "sessionId": id})).await;
        loop {
            let message = events.next().await.unwrap();
            copy.take(&message);
            if message.event == "run_finished" {
                break;
            }
        }
        copy.assert_current(&server, &id).await;
    }
    assert_eq!(copy.turns.len(), 4);
}

#[tokio::test]
async fn a_view_comes_right_before_its_event_and_only_when_asked_for() {
    let server = Server::start().await;
    let id = conversation(&server).await;
    let mut events = server.follow(&id, "view=1", None).await;
    let mut announced = None;
    loop {
        let message = events.next().await.unwrap();
        match (message.event.as_str(), message.id) {
            ("caught_up", _) => break,
            ("view", None) => announced = message.json()["seq"].as_u64(),
            (_, Some(seq)) => assert!(announced.take().is_none_or(|view| view == seq)),
            _ => {}
        }
    }
    for query in ["", "view=0", "after=-1"] {
        let mut events = server.follow(&id, query, None).await;
        loop {
            let message = events.next().await.unwrap();
            assert_ne!(message.event, "view");
            if message.event == "caught_up" {
                break;
            }
        }
    }
}

/// Connects again and again and takes a few messages each time.
async fn piecemeal(server: &Server, id: &str, copy: &mut Copy, until: u64, live: bool) {
    let mut connections = 0;
    while copy.last_seq != Some(until) {
        connections += 1;
        let query = if connections % 3 == 0 {
            "after=0&view=1"
        } else {
            "view=1"
        };
        let cursor = copy.cursor();
        let mut events = server.follow(id, query, cursor.as_deref()).await;
        // Cut after the first message, which may be a view whose event then is cut off, and the
        // next time after the second.
        let mut left = 1 + connections % 2;
        while left > 0 {
            let message = events.next().await.unwrap();
            if copy.take(&message) {
                left -= 1;
            }
            if message.event == "caught_up" && !live {
                break;
            }
        }
    }
    assert!(connections > until / 2);
}

#[tokio::test]
async fn reconnecting_after_every_message_gives_every_event_once() {
    let server = Server::start().await;
    let id = conversation(&server).await;
    let log = server
        .get(&format!("/api/agent/sessions/{id}/log"))
        .await
        .json();
    let last = log["lines"].as_array().unwrap().len() as u64 - 1;
    let mut copy = Copy::default();
    piecemeal(&server, &id, &mut copy, last, false).await;
    assert_eq!(copy.seqs, (0..=last).collect::<Vec<_>>());
    let mut views = copy.views.clone();
    views.dedup();
    assert_eq!(views, copy.views);
    copy.assert_current(&server, &id).await;
}

#[tokio::test]
async fn every_position_gives_exactly_the_rest() {
    let server = Server::start().await;
    let id = conversation(&server).await;
    let log = server
        .get(&format!("/api/agent/sessions/{id}/log"))
        .await
        .json();
    let count = log["lines"].as_array().unwrap().len() as u64;
    for after in 0..count {
        for query in [format!("after={after}"), format!("after={after}&view=1")] {
            let mut events = server.follow(&id, &query, None).await;
            let mut seqs = Vec::new();
            loop {
                let message = events.next().await.unwrap();
                seqs.extend(message.id);
                if message.event == "caught_up" {
                    break;
                }
            }
            assert_eq!(seqs, (after + 1..count).collect::<Vec<_>>());
        }
    }
    // Control events of a suffix know of what came before it.
    let mut events = server
        .follow(&id, &format!("after={}", count - 2), None)
        .await;
    let end = events.until("run_finished").await;
    assert!(end.json()["answer"].as_str().unwrap().contains("and two"));
}

#[tokio::test]
async fn a_page_that_reloads_in_the_middle_of_a_run_misses_nothing() {
    let server = Server::start().await;
    let call = server.call();
    let mut stream = server
        .stream(&json!({"task": "talk", "model": "script/m"}))
        .await;
    let started = stream.until("run_started").await.json();
    let id = started["sessionId"].as_str().unwrap().to_owned();
    drop(stream);
    let mut all = Copy::default();
    let mut whole = server.follow(&id, "view=1", None).await;
    for word in ["a ", "b ", "c ", "d "] {
        call.say(word);
        // Wait until the word is in the log, on the connection that stays.
        loop {
            let message = whole.next().await.unwrap();
            all.take(&message);
            if message.event == "assistant/chunk" {
                break;
            }
        }
        let turns = server
            .get(&format!("/api/agent/sessions/{id}/turns"))
            .await
            .json();
        let mut page = Copy::from_turns(&turns);
        assert!(page.running);
        assert_eq!(json!(page.turns), json!(all.turns));
        let cursor = page.cursor();
        let mut events = server.follow(&id, "view=1", cursor.as_deref()).await;
        loop {
            let message = events.next().await.unwrap();
            page.take(&message);
            if message.event == "caught_up" {
                break;
            }
        }
        page.assert_current(&server, &id).await;
    }
    call.done("a b c d ");
    loop {
        let message = whole.next().await.unwrap();
        all.take(&message);
        if message.event == "run_finished" {
            assert_eq!(message.json()["answer"], "a b c d ");
            break;
        }
    }
    all.assert_current(&server, &id).await;
}

#[tokio::test]
async fn a_live_run_can_be_followed_in_pieces() {
    let server = Server::start().await;
    let call = server.call();
    let mut stream = server
        .stream(&json!({"task": "talk", "model": "script/m"}))
        .await;
    let id = stream.until("run_started").await.json()["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut copy = Copy::default();
    let mut seq = stream.until("step/start").await.id.unwrap();
    piecemeal(&server, &id, &mut copy, seq, true).await;
    for word in ["x", "y", "z"] {
        call.say(word);
        seq = stream.until("assistant/chunk").await.id.unwrap();
        let cursor = copy.cursor();
        let mut events = server.follow(&id, "view=1", cursor.as_deref()).await;
        while copy.last_seq != Some(seq) {
            copy.take(&events.next().await.unwrap());
        }
    }
    call.done("xyz");
    seq = stream.until("turn/end").await.id.unwrap();
    let cursor = copy.cursor();
    let mut events = server.follow(&id, "view=1", cursor.as_deref()).await;
    while copy.last_seq != Some(seq) {
        copy.take(&events.next().await.unwrap());
    }
    copy.assert_current(&server, &id).await;
}

#[tokio::test]
async fn bad_positions_are_refused_and_the_last_one_is_not() {
    let server = Server::start().await;
    let id = conversation(&server).await;
    let log = server
        .get(&format!("/api/agent/sessions/{id}/log"))
        .await
        .json();
    let last = log["lines"].as_array().unwrap().len() - 1;
    let path = format!("/api/agent/sessions/{id}/events");
    for bad in [
        "x".into(),
        String::new(),
        "-2".into(),
        "1.0".into(),
        "%2B1".into(),
        (last + 1).to_string(),
        u64::MAX.to_string(),
    ] {
        let reply = server.get(&format!("{path}?after={bad}")).await;
        assert_eq!(
            reply.problem(400, "bad_cursor").as_deref(),
            Some("after"),
            "{bad}"
        );
    }
    let reply = server.follow(&id, "after=1", Some("x")).await.reply().await;
    assert_eq!(
        reply.problem(400, "bad_cursor").as_deref(),
        Some("Last-Event-ID")
    );
    server
        .get(&format!("{path}?view=2"))
        .await
        .problem(400, "invalid_input");

    let mut events = server.follow(&id, &format!("after={last}"), None).await;
    assert_eq!(events.next().await.unwrap().event, "caught_up");
    let last = last.to_string();
    let mut events = server.follow(&id, "after=nonsense", Some(&last)).await;
    assert_eq!(events.next().await.unwrap().event, "caught_up");
    let mut events = server.follow(&id, "after=2", Some("-1")).await;
    assert_eq!(events.until("turn/start").await.id, Some(0));
}

#[tokio::test]
async fn a_deleted_session_ends_its_streams_with_an_error() {
    let server = Server::start().await;
    let id = conversation(&server).await;
    let mut plain = server.follow(&id, "", None).await;
    let mut view = server.follow(&id, "view=1", None).await;
    plain.until("caught_up").await;
    view.until("caught_up").await;
    let path = format!("/api/agent/sessions/{id}");
    assert_eq!(server.request("DELETE", &path, "").await.status, 204);
    for events in [&mut plain, &mut view] {
        let error = events.until("error").await.json();
        assert_eq!(error["code"], "session_not_found");
        assert!(events.next().await.is_none());
    }
}
