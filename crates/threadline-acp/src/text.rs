//! Shortening texts.

/// Returns the first line that says something, of at most so many characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    match line.char_indices().nth(most) {
        None => line.to_owned(),
        Some(_) => {
            let kept: String = line.chars().take(most.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

/// Returns a text of at most about so many bytes: its start and its end, with a note between that
/// tells how much there is.
pub(crate) fn ends(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most / 4 * 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 4)..];
    let left_out = text.len() - head.len() - tail.len();
    let all = text.len();
    format!("{head}\n[… {left_out} of {all} bytes are left out here …]\n{tail}")
}

/// Returns the end of a text, with a note before that tells how much is left out.
pub(crate) fn end(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let tail = &text[text.ceil_char_boundary(text.len() - most)..];
    let left_out = text.len() - tail.len();
    format!("[… {left_out} bytes before are left out …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_at_the_limit_is_whole_and_one_past_it_tells_its_size() {
        assert_eq!(ends("12345678", 8), "12345678");
        let cut = ends("123456789", 8);
        assert_eq!(cut, "123456\n[… 1 of 9 bytes are left out here …]\n89");
        assert_eq!(end("12345678", 8), "12345678");
        assert_eq!(
            end("123456789", 8),
            "[… 1 bytes before are left out …]\n23456789"
        );
    }

    #[test]
    fn characters_are_never_cut() {
        assert!(ends(&"é".repeat(50), 9).starts_with("ééé\n"));
        assert!(end(&"é".repeat(50), 9).ends_with("]\néééé"));
        assert_eq!(one_line("\n  ééé é ", 4), "ééé…");
    }
}
