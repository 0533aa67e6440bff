//! The picker of sessions: what is listed, searched and selected.

use std::collections::{HashMap, HashSet};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use threadline_session::{SessionId, Turn};
use threadline_store::{Archived, ListFilter, ListPage, SessionSummary};

use crate::{
    app::{Effect, Trouble},
    composer::Composer,
    limits::{MAX_ROWS, PREVIEW_REST_MS, ROWS_AHEAD},
    turns::Turns,
};

/// A row as it is shown: in which row of the list it is, and how deep in its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// Place among the loaded rows.
    pub row: usize,
    /// Ancestors of it that are shown above it.
    pub depth: usize,
}

/// The preview of the selected session.
#[derive(Debug)]
pub enum Preview {
    /// Nothing is selected.
    None,
    /// It is to be read once the selection rests.
    Wanted(SessionId, u64),
    /// It is being read.
    Loading(SessionId),
    /// Its last turns.
    Ready(SessionId, Box<Turns>),
    /// It cannot be read.
    Failed(SessionId, Trouble),
}

impl Preview {
    fn id(&self) -> Option<&SessionId> {
        match self {
            Self::None => None,
            Self::Wanted(id, _) | Self::Loading(id) | Self::Ready(id, _) | Self::Failed(id, _) => {
                Some(id)
            }
        }
    }
}

/// What the next key goes to.
#[derive(Debug)]
pub enum Asking {
    /// The search.
    Search,
    /// The new title of a session.
    Title(SessionId, Composer),
}

/// What a person wants of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Go on with it.
    Open(SessionId),
    /// Begin a new one.
    New,
    /// Fork it from a turn.
    Fork(SessionId),
    /// Delete it, unless that is undone.
    Delete(SessionId, String),
    /// Bring the last one back that was deleted.
    Undo,
    /// Show the help.
    Help,
    /// Leave.
    Leave,
}

/// The picker.
#[derive(Debug)]
pub struct Picker {
    /// The folder that the program was started in, as lists name it.
    cwd: String,
    /// What is searched for.
    pub search: Composer,
    /// Whether only sessions of this folder are listed.
    pub here: bool,
    /// Which sessions are listed as far as archiving goes.
    pub archived: Archived,
    /// Loaded rows, newest activity first.
    pub rows: Vec<SessionSummary>,
    /// What is shown, in order.
    pub branches: Vec<Branch>,
    /// Sessions that are about to be deleted.
    pub hidden: HashSet<SessionId>,
    next: Option<String>,
    /// Whether rows are on their way.
    pub loading: bool,
    /// Whether what is shown is not yet what was asked for last.
    stale: bool,
    /// A key that came in the meantime and is about the selected row, which it has not seen.
    held: Option<KeyEvent>,
    /// Why the list could not be read.
    pub trouble: Option<Trouble>,
    /// Sessions that a list being made anew still lacks.
    pub rebuilding: Option<u64>,
    /// Counts the lists that were asked for; an older one's pages are dropped.
    generation: u64,
    /// Selected session.
    pub selected: Option<SessionId>,
    /// Its last turns.
    pub preview: Preview,
    /// What the keys go to.
    pub asking: Asking,
}

impl Picker {
    /// Makes a picker for a folder.
    #[must_use]
    pub fn new(cwd: String) -> Self {
        Self {
            cwd,
            search: Composer::default(),
            here: true,
            archived: Archived::No,
            rows: Vec::new(),
            branches: Vec::new(),
            hidden: HashSet::new(),
            next: None,
            loading: false,
            stale: false,
            held: None,
            trouble: None,
            rebuilding: None,
            generation: 0,
            selected: None,
            preview: Preview::None,
            asking: Asking::Search,
        }
    }

    /// Lists anew.
    pub fn list(&mut self) -> Effect {
        self.generation += 1;
        self.loading = true;
        self.stale = true;
        self.held = None;
        self.next = None;
        self.ask(None)
    }

    fn ask(&self, cursor: Option<String>) -> Effect {
        let query = self.search.text().trim();
        Effect::List {
            generation: self.generation,
            filter: ListFilter {
                query: (!query.is_empty()).then(|| query.to_owned()),
                archived: self.archived,
                cwd: self.here.then(|| self.cwd.clone()),
                ..ListFilter::default()
            },
            cursor,
        }
    }

    /// Returns whether there is more than what is loaded, and cannot be scrolled to.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.next.is_some() && self.rows.len() >= MAX_ROWS
    }

    /// Returns whether there is more than what is loaded.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// Takes a page of the list. Returns what is to be done by a key that waited for it.
    pub fn listed(
        &mut self,
        generation: u64,
        first: bool,
        page: Result<ListPage, Trouble>,
        now_ms: u64,
    ) -> (Vec<Effect>, Option<Wish>) {
        if generation != self.generation {
            return (Vec::new(), None);
        }
        self.loading = false;
        self.stale = false;
        let held = self.held.take().filter(|_| page.is_ok());
        match page {
            Ok(page) => {
                self.trouble = None;
                if first {
                    self.rows.clear();
                    self.rebuilding = None;
                }
                self.rebuilding = page.rebuilding.or(self.rebuilding);
                self.next = page.next;
                // One that was active between two pages is on both.
                let known: HashSet<SessionId> =
                    self.rows.iter().map(|row| row.id.clone()).collect();
                let new = page.sessions.into_iter();
                self.rows.extend(new.filter(|row| !known.contains(&row.id)));
            }
            Err(trouble) => {
                if first {
                    self.rows.clear();
                }
                self.trouble = Some(trouble);
            }
        }
        self.arrange(now_ms);
        held.map_or((Vec::new(), None), |key| self.key(key, 1, now_ms))
    }

    /// Puts forks below what they were forked from, as far as both are loaded; a family is where
    /// its most active member is. Loading more only ever adds rows.
    pub fn arrange(&mut self, now_ms: u64) {
        let at = self.place().unwrap_or(0);
        let shown: Vec<usize> = (0..self.rows.len())
            .filter(|row| !self.hidden.contains(&self.rows[*row].id))
            .collect();
        let places: HashMap<&SessionId, usize> = shown
            .iter()
            .map(|row| (&self.rows[*row].id, *row))
            .collect();
        let parent = |row: usize| {
            let parent = self.rows[row].parent.as_ref()?;
            places
                .get(&parent.id)
                .copied()
                .filter(|place| *place != row)
        };
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        for row in &shown {
            if let Some(parent) = parent(*row) {
                children.entry(parent).or_default().push(*row);
            }
        }
        let mut branches = Vec::with_capacity(shown.len());
        let mut done = HashSet::new();
        for row in &shown {
            // Up to the ancestor that is loaded; what claims to be its own ancestor ends the way.
            let (mut root, mut way) = (*row, HashSet::from([*row]));
            while let Some(above) = parent(root).filter(|above| way.insert(*above)) {
                root = above;
            }
            let mut stack = vec![Branch {
                row: root,
                depth: 0,
            }];
            while let Some(branch) = stack.pop() {
                if !done.insert(branch.row) {
                    continue;
                }
                branches.push(branch);
                let below = children.get(&branch.row).into_iter().flatten().rev();
                stack.extend(below.map(|row| Branch {
                    row: *row,
                    depth: branch.depth + 1,
                }));
            }
        }
        self.branches = branches;
        if self.place().is_none() {
            let at = at.min(self.branches.len().saturating_sub(1));
            self.select(at, now_ms);
        }
    }

    /// Returns the place of the selected session among what is shown.
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.branches.iter().position(|branch| {
            let row = self.rows.get(branch.row);
            row.is_some_and(|row| row.id == *selected)
        })
    }

    /// Returns the selected row.
    #[must_use]
    pub fn row(&self) -> Option<&SessionSummary> {
        let branch = self.branches.get(self.place()?)?;
        self.rows.get(branch.row)
    }

    fn select(&mut self, at: usize, now_ms: u64) {
        let branch = self.branches.get(at);
        let row = branch.and_then(|branch| self.rows.get(branch.row));
        self.selected = row.map(|row| row.id.clone());
        if self.preview.id() != self.selected.as_ref() {
            self.preview = match &self.selected {
                Some(id) => Preview::Wanted(id.clone(), now_ms + PREVIEW_REST_MS),
                None => Preview::None,
            };
        }
    }

    /// Moves the selection, and asks for more rows near the last one.
    pub fn go(&mut self, by: isize, now_ms: u64) -> Option<Effect> {
        let last = self.branches.len().checked_sub(1)?;
        let at = self
            .place()
            .unwrap_or(0)
            .saturating_add_signed(by)
            .min(last);
        self.select(at, now_ms);
        if at + ROWS_AHEAD > last && !self.loading && self.rows.len() < MAX_ROWS {
            let next = self.next.clone()?;
            self.loading = true;
            return Some(self.ask(Some(next)));
        }
        None
    }

    /// Asks for the preview once the selection rests.
    pub fn tick(&mut self, now_ms: u64) -> Option<Effect> {
        let Preview::Wanted(id, at) = &self.preview else {
            return None;
        };
        if *at > now_ms {
            return None;
        }
        let id = id.clone();
        self.preview = Preview::Loading(id.clone());
        Some(Effect::Preview { id })
    }

    /// Returns whether something waits for its time.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.preview, Preview::Wanted(..))
    }

    /// Takes the last turns of a session.
    pub fn previewed(&mut self, id: SessionId, turns: Result<Vec<Turn>, Trouble>) {
        if self.preview.id() != Some(&id) {
            return;
        }
        self.preview = match turns {
            Ok(turns) => Preview::Ready(id, Box::new(Turns::new(turns))),
            Err(trouble) => Preview::Failed(id, trouble),
        };
    }

    /// Takes what a person changed of a session.
    pub fn changed(&mut self, row: SessionSummary, now_ms: u64) {
        let listed = match self.archived {
            Archived::No => !row.archived,
            Archived::Only => row.archived,
            Archived::All => true,
        };
        if listed {
            if let Some(known) = self.rows.iter_mut().find(|known| known.id == row.id) {
                *known = row;
            }
        } else {
            self.remove(&row.id, now_ms);
        }
    }

    /// Takes a session out of what is shown.
    pub fn remove(&mut self, id: &SessionId, now_ms: u64) {
        let at = self.place();
        self.rows.retain(|row| row.id != *id);
        self.branches.clear();
        if self.selected.as_ref() == Some(id) {
            self.selected = None;
        }
        self.arrange(now_ms);
        if let (None, Some(at)) = (&self.selected, at) {
            self.select(at, now_ms);
        }
    }

    /// Hides a session that is about to be deleted, or shows it again.
    pub fn hide(&mut self, id: &SessionId, hidden: bool, now_ms: u64) {
        let at = self.place().unwrap_or(0);
        if hidden {
            self.hidden.insert(id.clone());
        } else {
            self.hidden.remove(id);
        }
        self.arrange(now_ms);
        if self.place().is_none() {
            let last = self.branches.len().saturating_sub(1);
            self.select(at.min(last), now_ms);
        }
    }

    /// Takes pasted text.
    pub fn paste(&mut self, text: &str) -> Option<Effect> {
        // What is searched for and titles have one line.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match &mut self.asking {
            Asking::Title(_, title) => {
                title.insert(&text);
                None
            }
            Asking::Search => {
                self.search.insert(&text);
                Some(self.list())
            }
        }
    }

    /// Takes a key. Returns what to do, and what the person wants of a session.
    pub fn key(&mut self, key: KeyEvent, rows: usize, now_ms: u64) -> (Vec<Effect>, Option<Wish>) {
        if let Asking::Title(..) = self.asking {
            return (self.title_key(key).into_iter().collect(), None);
        }
        let page = isize::try_from(rows.max(2) - 1).unwrap_or(1);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        self.held = None;
        if self.stale && acts_on_row(key) {
            self.held = Some(key);
            return (Vec::new(), None);
        }
        let moved = match key.code {
            KeyCode::Up => Some(-1),
            KeyCode::Down => Some(1),
            KeyCode::Char('p') if control => Some(-1),
            KeyCode::Char('n') if control => Some(1),
            KeyCode::PageUp => Some(-page),
            KeyCode::PageDown => Some(page),
            KeyCode::Home if control => Some(isize::MIN),
            KeyCode::End if control => Some(isize::MAX),
            _ => None,
        };
        if let Some(by) = moved {
            return (self.go(by, now_ms).into_iter().collect(), None);
        }
        if control {
            return self.control_key(key.code);
        }
        match key.code {
            KeyCode::Enter => {
                // Who looks for a session wants no new one because it was not found.
                let begin = self.search.is_empty().then_some(Wish::New);
                (Vec::new(), self.selected.clone().map(Wish::Open).or(begin))
            }
            KeyCode::Tab => {
                self.here = !self.here;
                (vec![self.list()], None)
            }
            KeyCode::Esc if self.search.is_empty() => (Vec::new(), Some(Wish::Leave)),
            KeyCode::Esc => {
                self.search.set("");
                (vec![self.list()], None)
            }
            KeyCode::F(1) => (Vec::new(), Some(Wish::Help)),
            KeyCode::Char('?') if self.search.is_empty() => (Vec::new(), Some(Wish::Help)),
            _ => (self.search_key(key).into_iter().collect(), None),
        }
    }

    fn search_key(&mut self, key: KeyEvent) -> Option<Effect> {
        let before = self.search.text().to_owned();
        edit(&mut self.search, key);
        (self.search.text() != before).then(|| self.list())
    }

    fn control_key(&mut self, code: KeyCode) -> (Vec<Effect>, Option<Wish>) {
        let row = self.row().cloned();
        match (code, row) {
            (KeyCode::Char('c' | 'd'), _) => (Vec::new(), Some(Wish::Leave)),
            (KeyCode::Char('o'), _) => (Vec::new(), Some(Wish::New)),
            (KeyCode::Char('b'), _) => (Vec::new(), Some(Wish::Undo)),
            (KeyCode::Char('a'), _) => {
                self.archived = match self.archived {
                    Archived::No => Archived::All,
                    Archived::All => Archived::Only,
                    Archived::Only => Archived::No,
                };
                (vec![self.list()], None)
            }
            (KeyCode::Char('u'), _) if !self.search.is_empty() => {
                self.search.set("");
                (vec![self.list()], None)
            }
            (KeyCode::Char('w'), _) => {
                let key = KeyEvent::new(code, KeyModifiers::CONTROL);
                (self.search_key(key).into_iter().collect(), None)
            }
            (KeyCode::Char('r'), Some(row)) => {
                let mut title = Composer::default();
                title.set(row.title.clone().unwrap_or_default());
                self.asking = Asking::Title(row.id, title);
                (Vec::new(), None)
            }
            (KeyCode::Char('t'), Some(row)) => {
                let archive = Effect::Archive {
                    id: row.id,
                    archived: !row.archived,
                };
                (vec![archive], None)
            }
            (KeyCode::Char('x'), Some(row)) => {
                let about = crate::draw::about(&row);
                (Vec::new(), Some(Wish::Delete(row.id, about)))
            }
            (KeyCode::Char('f'), Some(row)) => (Vec::new(), Some(Wish::Fork(row.id))),
            _ => (Vec::new(), None),
        }
    }

    fn title_key(&mut self, key: KeyEvent) -> Option<Effect> {
        let Asking::Title(id, title) = &mut self.asking else {
            return None;
        };
        match key.code {
            KeyCode::Esc => self.asking = Asking::Search,
            KeyCode::Enter => {
                let rename = Effect::Rename {
                    id: id.clone(),
                    title: title.text().trim().to_owned(),
                };
                self.asking = Asking::Search;
                return Some(rename);
            }
            _ => edit(title, key),
        }
        None
    }
}

/// Whether a key does something to the selected row.
fn acts_on_row(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Enter => true,
        KeyCode::Char('r' | 't' | 'x' | 'f') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// Lets a key change one line of text.
pub(crate) fn edit(text: &mut Composer, key: KeyEvent) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Char('a') if control => text.home(),
        KeyCode::Char('e') if control => text.end(),
        KeyCode::Char('w') if control => text.delete_word(),
        KeyCode::Char('u') if control => text.delete_to_start(),
        KeyCode::Char('k') if control => text.delete_to_end(),
        KeyCode::Char('b') if alt => text.word_left(),
        KeyCode::Char('f') if alt => text.word_right(),
        KeyCode::Char(c) if !control && !alt => text.insert(c.encode_utf8(&mut [0; 4])),
        KeyCode::Backspace if alt || control => text.delete_word(),
        KeyCode::Backspace => text.backspace(),
        KeyCode::Delete => text.delete(),
        KeyCode::Left if control || alt => text.word_left(),
        KeyCode::Right if control || alt => text.word_right(),
        KeyCode::Left => text.left(),
        KeyCode::Right => text.right(),
        KeyCode::Home => text.home(),
        KeyCode::End => text.end(),
        _ => {}
    }
}
