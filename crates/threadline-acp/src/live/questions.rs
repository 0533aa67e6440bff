//! The questions of a run that is followed, and of its subagents.

use agent_client_protocol_schema::v1::ToolCall;
use threadline_agent::{Agents, ApprovalInfo};
use threadline_session::{
    TurnItem,
    payload::{ApprovalAsked, ApprovalDecided},
};

use super::Live;
use crate::ask::{self, Asking};

impl Live {
    /// A question of this session. Its call was shown before.
    pub(super) fn asked(&mut self, asked: ApprovalAsked, time: u64) {
        let Some(run_id) = self.turn.run_id.clone() else {
            return;
        };
        let info = ApprovalInfo::of(run_id, self.open.id.clone(), asked, time);
        // One that is asked and answered in one batch was answered before its process died.
        if !is_waiting(&self.c.agents, &info) {
            return;
        }
        let items = self.view.turns().last().map(|turn| &turn.items);
        let item = items
            .into_iter()
            .flatten()
            .rev()
            .find_map(|item| match item {
                TurnItem::Tool(call)
                    if call
                        .approval
                        .as_ref()
                        .is_some_and(|a| a.approval_id == info.approval_id) =>
                {
                    Some(call)
                }
                _ => None,
            });
        let call = match item.and_then(|item| self.updates.shown_call(&item.id)) {
            Some(call) => call,
            None => ask::alone(&info, &self.open.state().cwd),
        };
        self.put(info, call);
    }

    fn put(&mut self, info: ApprovalInfo, call: ToolCall) {
        let asking = Asking::default();
        self.asking.insert(info.approval_id.clone(), asking.clone());
        let asks = ask::ask(self.c.clone(), self.open.clone(), info, call, asking);
        self.c.tasks.spawn(asks);
    }

    pub(super) fn decided(&mut self, decided: &ApprovalDecided) {
        if let Some(asking) = self.asking.remove(&decided.approval_id) {
            self.settle(&asking);
        }
    }

    fn settle(&self, asking: &Asking) {
        // Who cancels a turn answers its questions in one go.
        let cancelled = self.current().iter().any(|t| t.cancel.is_cancelled());
        if cancelled {
            asking.over.cancel();
        } else {
            asking.settled.cancel();
        }
    }

    /// Subagents ask on the same board; their logs are not followed here.
    pub(super) async fn look_at_board(&mut self) {
        let waiting = self.c.agents.approvals().waiting(None);
        let mut gone: Vec<String> = self.asking.keys().cloned().collect();
        gone.retain(|id| waiting.iter().all(|info| info.approval_id != *id));
        for id in gone {
            if let Some(asking) = self.asking.remove(&id) {
                self.settle(&asking);
            }
        }
        for info in waiting {
            let known = self.asking.contains_key(&info.approval_id);
            if known || info.session_id == self.open.id || !self.is_ancestor_of(&info).await {
                continue;
            }
            let call = ask::alone(&info, &self.open.state().cwd);
            self.put(info, call);
        }
    }

    async fn is_ancestor_of(&self, info: &ApprovalInfo) -> bool {
        let store = self.c.agents.store();
        let mut id = info.session_id.clone();
        for _ in 0..threadline_agent::limits::SUBAGENT_DEPTH {
            let Ok(stored) = store.header(&id).await else {
                return false;
            };
            match stored.header.parent {
                Some(parent) if parent.id == self.open.id => return true,
                Some(parent) => id = parent.id,
                None => return false,
            }
        }
        false
    }
}

fn is_waiting(agents: &Agents, info: &ApprovalInfo) -> bool {
    let waiting = agents.approvals().waiting(Some(&info.run_id));
    waiting
        .iter()
        .any(|other| other.approval_id == info.approval_id)
}
