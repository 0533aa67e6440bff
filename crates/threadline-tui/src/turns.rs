//! Turns that are held for showing: changed by patches, laid out where they are seen.

use std::collections::VecDeque;

use ratatui::text::Line;
use threadline_session::{Patch, Turn, TurnHead, TurnItem};

use crate::{
    limits::MAX_EARLIER_ITEMS,
    render::{self, Look},
};

/// Lines of something, as it was laid out last.
#[derive(Debug, Clone, Default)]
struct Laid {
    look: Option<Look>,
    lines: Vec<Line<'static>>,
}

impl Laid {
    fn lines(
        &mut self,
        look: Look,
        lay_out: impl FnOnce() -> Vec<Line<'static>>,
    ) -> &[Line<'static>] {
        if self.look != Some(look) {
            self.lines = lay_out();
            self.look = Some(look);
        }
        &self.lines
    }

    fn stale(&mut self) {
        *self = Self::default();
    }
}

#[derive(Debug, Clone)]
struct ShownItem {
    item: TurnItem,
    laid: Laid,
}

impl From<TurnItem> for ShownItem {
    fn from(item: TurnItem) -> Self {
        Self {
            item,
            laid: Laid::default(),
        }
    }
}

/// A turn that is held.
#[derive(Debug, Clone)]
pub struct ShownTurn {
    head: TurnHead,
    items: Vec<ShownItem>,
    above: Laid,
    below: Laid,
}

impl From<Turn> for ShownTurn {
    fn from(turn: Turn) -> Self {
        Self {
            head: turn.head,
            items: turn.items.into_iter().map(ShownItem::from).collect(),
            above: Laid::default(),
            below: Laid::default(),
        }
    }
}

impl ShownTurn {
    /// Returns the turn's head.
    #[must_use]
    pub fn head(&self) -> &TurnHead {
        &self.head
    }

    /// Returns the turn's items.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = &TurnItem> {
        self.items.iter().map(|shown| &shown.item)
    }

    /// Blocks: what is above the items, each item, what is below.
    fn blocks(&self) -> usize {
        self.items.len() + 2
    }

    fn block(&mut self, at: usize, look: Look) -> &[Line<'static>] {
        let head = &self.head;
        if at == 0 {
            return self.above.lines(look, || render::turn_head(head, look));
        }
        match self.items.get_mut(at - 1) {
            Some(ShownItem { item, laid }) => laid.lines(look, || render::item(item, look)),
            None => self.below.lines(look, || render::turn_foot(head, look)),
        }
    }
}

/// A line of what is held: turn, block, line. Turns are counted from the oldest that ever was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    turn: i64,
    block: usize,
    line: usize,
}

/// Turns next to each other, and the part of them that is seen.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    turns: VecDeque<ShownTurn>,
    /// Number of the first turn held, for spots: goes down when earlier ones are put in front.
    first: i64,
    /// The line at the top of the screen; `None` follows the end.
    top: Option<Spot>,
    /// Turns behind the held ones were let go of.
    hole: bool,
}

impl Turns {
    /// Holds these turns and follows their end.
    #[must_use]
    pub fn new(turns: Vec<Turn>) -> Self {
        Self {
            turns: turns.into_iter().map(ShownTurn::from).collect(),
            ..Self::default()
        }
    }

    /// Returns the turns.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ShownTurn> {
        self.turns.iter()
    }

    /// Returns whether the end is followed.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.top.is_none()
    }

    /// Returns whether turns behind the held ones were let go of.
    #[must_use]
    pub fn has_hole(&self) -> bool {
        self.hole
    }

    /// Puts earlier turns in front. If the first turn held is the rest of one of them, the two
    /// become one. What is seen stays where it is.
    pub fn prepend(&mut self, earlier: Vec<Turn>) {
        let mut earlier: Vec<ShownTurn> = earlier.into_iter().map(ShownTurn::from).collect();
        if let (Some(last), Some(first)) = (earlier.last(), self.turns.front_mut())
            && last.head.start_seq == first.head.start_seq
            && let Some(begun) = earlier.pop()
        {
            let more = begun.items.len();
            first.items.splice(0..0, begun.items);
            first.above.stale();
            if let Some(top) = &mut self.top
                && top.turn == self.first
                && top.block > 0
            {
                top.block += more;
            }
        }
        self.first -= i64::try_from(earlier.len()).unwrap_or(0);
        for turn in earlier.into_iter().rev() {
            self.turns.push_front(turn);
        }
        self.let_go();
    }

    /// Lets the newest turns go when too much is held, but never what is seen.
    fn let_go(&mut self) {
        let Some(top) = self.top else {
            return;
        };
        let mut held: usize = self.turns.iter().map(ShownTurn::blocks).sum();
        while held > MAX_EARLIER_ITEMS && self.turns.len() > 1 {
            let last = self.first + i64::try_from(self.turns.len()).unwrap_or(i64::MAX) - 1;
            // A screen is never longer than a few turns of blocks; these stay.
            if last <= top.turn + 8 {
                break;
            }
            held -= self.turns.pop_back().map_or(0, |turn| turn.blocks());
            self.hole = true;
        }
    }

    /// Applies a change to the newest turns. Behind a hole there is nothing to change.
    pub fn apply(&mut self, patch: Patch) {
        if self.hole {
            return;
        }
        match patch {
            Patch::Turn { turn } => match self.find(turn.turn) {
                Some(shown) => {
                    shown.head = turn;
                    shown.above.stale();
                    shown.below.stale();
                }
                None => self.turns.push_back(ShownTurn::from(Turn {
                    head: turn,
                    items: Vec::new(),
                })),
            },
            Patch::Item { turn, item } => {
                let Some(shown) = self.find(turn) else {
                    return;
                };
                let known = shown
                    .items
                    .iter_mut()
                    .rev()
                    .find(|known| known.item.id() == item.id());
                match known {
                    Some(known) => *known = item.into(),
                    None => shown.items.push(item.into()),
                }
            }
            Patch::Append {
                turn,
                id,
                part,
                kind,
                text,
            } => self.append(turn, &id, part, kind, &text),
            Patch::Status { .. } => {}
        }
    }

    fn append(&mut self, turn: u64, id: &str, part: usize, kind: &str, text: &str) {
        use threadline_session::{ViewPart, payload::ChunkKind};
        let Some(shown) = self.find(turn) else {
            return;
        };
        let Some(known) = shown
            .items
            .iter_mut()
            .rev()
            .find(|known| known.item.id() == id)
        else {
            return;
        };
        known.laid.stale();
        match &mut known.item {
            TurnItem::Tool(call) => call.output.push_str(text),
            TurnItem::Assistant(message) => {
                let kind = match kind {
                    "reasoning" => ChunkKind::Reasoning,
                    "tool_args" => ChunkKind::ToolArgs,
                    _ => ChunkKind::Text,
                };
                while message.parts.len() <= part {
                    message.parts.push(ViewPart {
                        kind,
                        text: String::new(),
                    });
                }
                message.parts[part].text.push_str(text);
            }
            _ => {}
        }
    }

    fn find(&mut self, turn: u64) -> Option<&mut ShownTurn> {
        self.turns
            .iter_mut()
            .rev()
            .find(|shown| shown.head.turn == turn)
    }

    fn turn_mut(&mut self, at: i64) -> Option<&mut ShownTurn> {
        let at = usize::try_from(at.checked_sub(self.first)?).ok()?;
        self.turns.get_mut(at)
    }

    fn height(&mut self, turn: i64, block: usize, look: Look) -> usize {
        self.turn_mut(turn)
            .map_or(0, |shown| shown.block(block, look).len())
    }

    /// Returns the last line there is.
    fn end(&mut self, look: Look) -> Option<Spot> {
        let turn = self.first + i64::try_from(self.turns.len()).ok()? - 1;
        let block = self.turns.back()?.blocks() - 1;
        let line = self.height(turn, block, look).saturating_sub(1);
        Some(Spot { turn, block, line })
    }

    /// Goes up from a line; returns how many lines of the way there were not.
    fn up(&mut self, from: Spot, mut lines: usize, look: Look) -> (Spot, usize) {
        let mut spot = from;
        // The look may have changed since the spot was taken.
        spot.line = spot
            .line
            .min(self.height(spot.turn, spot.block, look).saturating_sub(1));
        while lines > 0 {
            if spot.line >= lines {
                spot.line -= lines;
                return (spot, 0);
            }
            lines -= spot.line;
            spot.line = 0;
            let mut above = spot;
            loop {
                if above.block > 0 {
                    above.block -= 1;
                } else if above.turn > self.first {
                    above.turn -= 1;
                    above.block = self.turn_mut(above.turn).map_or(1, |turn| turn.blocks()) - 1;
                } else {
                    return (spot, lines);
                }
                let height = self.height(above.turn, above.block, look);
                if height > 0 {
                    above.line = height - 1;
                    lines -= 1;
                    spot = above;
                    break;
                }
            }
        }
        (spot, 0)
    }

    /// Returns the spot where a screen begins that shows the end.
    fn top_of_end(&mut self, rows: usize, look: Look) -> Option<Spot> {
        let end = self.end(look)?;
        Some(self.up(end, rows.saturating_sub(1), look).0)
    }

    /// Scrolls up; returns whether the beginning of what is held is near.
    pub fn scroll_up(&mut self, lines: usize, rows: usize, look: Look) -> bool {
        let Some(top) = self.top.or_else(|| self.top_of_end(rows, look)) else {
            return true;
        };
        let (spot, missing) = self.up(top, lines, look);
        self.top = Some(spot);
        missing > 0 || spot.turn <= self.first + 1
    }

    /// Scrolls down, at the end back to following it.
    pub fn scroll_down(&mut self, lines: usize, rows: usize, look: Look) {
        let Some(mut spot) = self.top else {
            return;
        };
        let mut left = lines;
        while left > 0 {
            let height = self.height(spot.turn, spot.block, look);
            if spot.line + left < height {
                spot.line += left;
                break;
            }
            left -= height.saturating_sub(spot.line).min(left);
            spot.line = 0;
            let blocks = self.turn_mut(spot.turn).map_or(0, |turn| turn.blocks());
            if spot.block + 1 < blocks {
                spot.block += 1;
            } else {
                spot.turn += 1;
                spot.block = 0;
                if self.turn_mut(spot.turn).is_none() {
                    break;
                }
            }
        }
        self.top = match self.top_of_end(rows, look) {
            Some(last) if spot < last => Some(spot),
            // What was let go of comes before the end.
            Some(last) if self.hole => Some(last),
            _ => None,
        };
    }

    /// Goes to the first line that is held.
    pub fn to_start(&mut self) {
        self.top = Some(Spot {
            turn: self.first,
            block: 0,
            line: 0,
        });
    }

    /// Follows the end again.
    pub fn to_end(&mut self) {
        self.top = None;
    }

    /// Returns the lines that are seen.
    pub fn visible(&mut self, rows: usize, look: Look) -> Vec<Line<'static>> {
        let Some(mut spot) = self.top.or_else(|| self.top_of_end(rows, look)) else {
            return Vec::new();
        };
        let mut lines: Vec<Line<'static>> = Vec::with_capacity(rows);
        while lines.len() < rows {
            let Some(turn) = self.turn_mut(spot.turn) else {
                break;
            };
            if spot.block >= turn.blocks() {
                spot = Spot {
                    turn: spot.turn + 1,
                    block: 0,
                    line: 0,
                };
                continue;
            }
            let room = rows - lines.len();
            let block = turn.block(spot.block, look);
            lines.extend(block.iter().skip(spot.line).take(room).cloned());
            spot.block += 1;
            spot.line = 0;
        }
        lines
    }
}
