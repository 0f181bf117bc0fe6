//! Encodes images as sixels: bands of six rows, and for each color of a band the columns that have it.
//!
//! ```text
//! ESC P q " 1;1;WIDTH;HEIGHT   #N;2;R;G;B   #N COLUMNS $   #N COLUMNS -   ESC \
//!          size in pixels      a color      of a band      the next band
//! ```

use std::collections::BTreeSet;
use std::fmt::Write;

use super::png::Image;

/// Wider images are made smaller, because many windows are not wider.
const MAX_WIDTH: usize = 1000;
/// Higher images are made smaller, which bounds the time and the length of the text: each band may have all colors.
const MAX_HEIGHT: usize = 2000;
/// Levels of each channel: 216 colors, which every terminal has registers for.
const LEVELS: usize = 6;
const BAND_ROWS: usize = 6;
/// The character of an empty column.
const EMPTY: u8 = b'?';
/// Shorter runs are written out.
const SHORTEST_RUN: usize = 4;

/// The image as a sixel sequence, which draws it at the cursor.
pub fn encode(image: &Image) -> String {
    let step = image.width.div_ceil(MAX_WIDTH).max(image.height.div_ceil(MAX_HEIGHT)).max(1);
    let (width, height) = (image.width.div_ceil(step), image.height.div_ceil(step));
    let color = |x: usize, y: usize| register(image.pixels[y * step * image.width + x * step]);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "\x1bPq\"1;1;{width};{height}");
    for number in 0..LEVELS.pow(3) {
        let percent = |level: usize| level % LEVELS * 100 / (LEVELS - 1);
        let (red, green, blue) = (number / (LEVELS * LEVELS), number / LEVELS, number);
        let _ = write!(text, "#{number};2;{};{};{}", percent(red), percent(green), percent(blue));
    }
    for top in (0..height).step_by(BAND_ROWS) {
        let rows = BAND_ROWS.min(height - top);
        let colors: BTreeSet<usize> = (0..rows)
            .flat_map(|row| (0..width).map(move |x| (x, row)))
            .map(|(x, row)| color(x, top + row))
            .collect();
        for number in colors {
            let _ = write!(text, "#{number}");
            let columns = (0..width).map(|x| {
                let bits =
                    (0..rows).filter(|row| color(x, top + row) == number).map(|row| 1_u8 << row).sum::<u8>();
                EMPTY + bits
            });
            write_runs(columns, &mut text);
            text.push('$');
        }
        text.push('-');
    }
    text.push_str("\x1b\\\n");
    text
}

/// The number of the nearest color.
fn register(pixel: [u8; 3]) -> usize {
    pixel
        .iter()
        .fold(0, |number, channel| number * LEVELS + (usize::from(*channel) * (LEVELS - 1) + 127) / 255)
}

/// Writes columns; a run of equal ones as their number and one of them.
fn write_runs(columns: impl Iterator<Item = u8>, text: &mut String) {
    let mut columns = columns.peekable();
    while let Some(column) = columns.next() {
        let mut length = 1;
        while columns.next_if_eq(&column).is_some() {
            length += 1;
        }
        let column = char::from(column);
        if length < SHORTEST_RUN {
            text.extend(std::iter::repeat_n(column, length));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "!{length}{column}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: [u8; 3] = [255, 0, 0];
    const BLUE: [u8; 3] = [0, 0, 255];

    /// The part after the colors.
    fn bands(image: &Image) -> String {
        let text = encode(image);
        let last_color = text.find("#215;2;100;100;100").unwrap() + "#215;2;100;100;100".len();
        text[last_color..].strip_suffix("\x1b\\\n").unwrap().to_owned()
    }

    #[test]
    fn each_color_of_a_band_has_its_columns() {
        // Two columns of two rows: red above blue, and red.
        let image = Image { width: 2, height: 2, pixels: vec![RED, RED, BLUE, RED] };
        assert!(encode(&image).starts_with("\x1bPq\"1;1;2;2#0;2;0;0;0#1;2;0;0;20"));
        // Bit 0 is the upper row: red has 1 and 3, blue 2 and 0.
        assert_eq!(bands(&image), "#5A?$#180@B$-");
    }

    #[test]
    fn bands_have_six_rows_and_runs_are_short() {
        let image = Image { width: 5, height: 7, pixels: vec![RED; 35] };
        assert_eq!(bands(&image), "#180!5~$-#180!5@$-");
    }

    #[test]
    fn colors_are_rounded_and_large_images_made_smaller() {
        assert_eq!([[0; 3], [255; 3], [255, 0, 0], [25, 26, 0]].map(register), [0, 215, 180, 6]);
        let image = Image { width: 2500, height: 3, pixels: vec![BLUE; 7500] };
        assert!(encode(&image).starts_with("\x1bPq\"1;1;834;1#"));
        assert_eq!(bands(&image), "#5!834@$-");
        let image = Image { width: 3, height: 5000, pixels: vec![BLUE; 15_000] };
        assert!(encode(&image).starts_with("\x1bPq\"1;1;1;1667#"));
    }
}
