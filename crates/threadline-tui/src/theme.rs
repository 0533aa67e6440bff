//! How what is shown looks. Every difference that colour tells is told without it too.

use ratatui::style::{Color, Modifier, Style};

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// Titles and names.
    Strong,
    /// What can be passed over.
    Faint,
    /// It went well.
    Good,
    /// It needs a look.
    Warning,
    /// It went wrong.
    Bad,
    /// The person's own words and what is selected by them.
    Accent,
    /// Code and commands.
    Code,
}

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Whether colours are used.
    pub colour: bool,
}

impl Theme {
    /// Returns the style for a meaning.
    #[must_use]
    pub fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        if !self.colour {
            return match tone {
                Tone::Plain | Tone::Good | Tone::Code => style,
                Tone::Strong | Tone::Warning | Tone::Accent => style.add_modifier(Modifier::BOLD),
                Tone::Faint => style.add_modifier(Modifier::DIM),
                Tone::Bad => style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            };
        }
        // The sixteen colours of the terminal's own palette: readable on dark and on light.
        match tone {
            Tone::Plain => style,
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            // Not the palette's dark grey: some make it their background.
            Tone::Faint => style.add_modifier(Modifier::DIM),
            Tone::Good => style.fg(Color::Green),
            Tone::Warning => style.fg(Color::Yellow),
            Tone::Bad => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Accent => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            Tone::Code => style.fg(Color::Blue),
        }
    }

    /// Returns the style of what is selected.
    #[must_use]
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
