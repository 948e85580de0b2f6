//! A map of ratios: columns × rows of tiles coloured around 1, with the best row of every column edged and joined.
//!
//! Colours run from orange (below 1) over grey to blue (above), which every common form of colour blindness tells apart;
//! large maps print the value too. Tiles that could not be run are hatched, absent ones stay empty.

use maud::{Markup, html};
use std::fmt::Write as _;

use super::shades::{EDGES, shade};
use super::tile::{HeatRow, Tile, hatch, printed};
use super::{FONT, clipped, px, text_width};

/// Room above the tiles.
const TOP: f64 = 6.0;
/// Air between the ladder and the rows above it.
const APART: f64 = 7.0;

/// How much a map says beside its colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Size {
    /// Values printed, tiles that explain themselves when pointed at.
    Large,
    /// Colours and the line only.
    Small,
}

/// A map.
pub(in crate::report) struct Heat {
    /// For readers who do not see it.
    pub title: String,
    /// Below the columns.
    pub x_label: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Beside the ladder.
    pub y_label: String,
    /// Rows from the lowest to the highest.
    pub ladder: Vec<HeatRow>,
    /// Rows set apart above the ladder, from the top.
    pub above: Vec<HeatRow>,
    /// How it is drawn.
    pub size: Size,
}

/// Places of a map.
struct Frame {
    left: f64,
    /// Width of the ladder's names.
    names: f64,
    wide: f64,
    high: f64,
    ladder_top: f64,
    base: f64,
    total: (f64, f64),
}

impl Heat {
    /// Best row of the ladder in every column; of equals the lowest.
    fn best(&self) -> Vec<Option<usize>> {
        let column = |c: usize| {
            let mut best: Option<(usize, f64)> = None;
            for (r, row) in self.ladder.iter().enumerate() {
                if let Some(v) = row.tiles.get(c).and_then(Tile::ratio)
                    && best.is_none_or(|b| v > b.1)
                {
                    best = Some((r, v));
                }
            }
            best.map(|b| b.0)
        };
        (0..self.columns.len()).map(column).collect()
    }

    fn frame(&self) -> Frame {
        let large = self.size == Size::Large;
        let widest = |rows: &[HeatRow]| rows.iter().map(|r| text_width(&r.label)).fold(18.0, f64::max);
        let names = widest(&self.ladder) + if large { 4.0 } else { 0.0 };
        // The title stands beside the ladder's names; names above it may reach over both.
        let left = if large { (names + 22.0).max(widest(&self.above).min(110.0) + 8.0) } else { names.min(22.0) + 8.0 };
        let total = if large { 440.0 } else { 168.0 };
        let wide = (total - left - 2.0) / self.columns.len().max(1) as f64;
        let many = (self.ladder.len() + self.above.len()) as f64;
        let high = if large {
            (380.0 / many).clamp(14.0, 21.0)
        } else {
            (104.0 / self.ladder.len().max(1) as f64).clamp(4.0, 14.0)
        };
        let apart = if self.above.is_empty() { 0.0 } else { APART };
        let ladder_top = TOP + high * self.above.len() as f64 + apart;
        let base = ladder_top + high * self.ladder.len() as f64;
        let below = if large { 42.0 } else { 18.0 };
        Frame { left, names, wide, high, ladder_top, base, total: (total, base + below) }
    }

    /// Height of the picture in its own units.
    pub fn height(&self) -> f64 {
        self.frame().total.1
    }

    /// The picture; nothing without a tile that was asked for.
    pub fn draw(&self) -> Option<Markup> {
        let rows = || self.ladder.iter().chain(&self.above);
        let drawn = |t: &Tile| t.ratio().is_some() || matches!(t, Tile::Refused(_));
        if self.columns.is_empty() || !rows().flat_map(|r| &r.tiles).any(drawn) {
            return None;
        }
        let f = self.frame();
        let best = self.best();
        let ladder = self.ladder.iter().enumerate().map(|(i, row)| (f.base - f.high * (i as f64 + 1.0), row, Some(i)));
        let above = self.above.iter().enumerate().map(|(i, row)| (TOP + f.high * i as f64, row, None));
        let placed: Vec<(f64, &HeatRow, Option<usize>)> = ladder.chain(above).collect();
        let large = self.size == Size::Large;
        let room = f.left - 4.0;
        Some(html! {
            svg class="plot heat" viewBox={ "0 0 " (px(f.total.0)) " " (px(f.total.1)) } role="img" aria-label=(self.title) {
                @if large {
                    @for (y, row, at) in &placed { (self.spoken(&f, *y, row, *at, &best)) }
                } @else {
                    (self.merged(&f, &placed))
                }
                @for (i, (y, row, _)) in placed.iter().enumerate() {
                    @if large || shown(i, self.ladder.len(), f.high) {
                        text class="tick end" x=(px(f.left - 5.0)) y=(px(y + f.high / 2.0 + 0.35 * FONT)) { (clipped(&row.label, room)) }
                    }
                }
                (self.ceiling(&f, &best))
                (self.across(&f))
            }
        })
    }

    /// A row of tiles with their values.
    fn spoken(&self, f: &Frame, y: f64, row: &HeatRow, at: Option<usize>, best: &[Option<usize>]) -> Markup {
        html! {
            @for (c, tile) in row.tiles.iter().take(self.columns.len()).enumerate() {
                @let x = f.left + f.wide * c as f64;
                @match tile {
                    Tile::Ratio { value, note, flag } if value.is_finite() => {
                        @let text = printed(*value);
                        @let fits = text_width(&text) <= f.wide;
                        @let top = at.is_some() && best[c] == at;
                        g {
                            @if !note.is_empty() { title { (note) } }
                            rect class={ "tile d" (shade(*value)) } x=(px(x)) y=(px(y)) width=(px(f.wide)) height=(px(f.high)) {}
                            @if fits { text class={ "mid v" (shade(*value)) @if top { " top" } } x=(px(x + f.wide / 2.0)) y=(px(y + f.high / 2.0 + 0.35 * FONT)) { (text) } }
                            @if *flag { path class={ "corner v" (shade(*value)) } d={ "M" (px(x + f.wide - 7.0)) " " (px(y + 1.0)) "h6v6Z" } {} }
                        }
                    }
                    Tile::Refused(why) => g {
                        @if !why.is_empty() { title { (why) } }
                        rect class="void" x=(px(x)) y=(px(y)) width=(px(f.wide)) height=(px(f.high)) {}
                        path class="hatch" d=(hatch(x, y, f.wide, f.high)) {}
                    },
                    _ => {}
                }
            }
        }
    }

    /// All tiles of one colour as one path: thousands of them must stay a small page.
    fn merged(&self, f: &Frame, placed: &[(f64, &HeatRow, Option<usize>)]) -> Markup {
        let mut shades = vec![String::new(); EDGES.len() + 1];
        let (mut void, mut lines) = (String::new(), String::new());
        for (y, row, _) in placed {
            for (c, tile) in row.tiles.iter().take(self.columns.len()).enumerate() {
                let x = f.left + f.wide * c as f64;
                let outline = format!("M{} {}h{w}v{}h-{w}Z", px(x), px(*y), px(f.high), w = px(f.wide));
                match tile {
                    Tile::Refused(_) => {
                        void.push_str(&outline);
                        lines.push_str(&hatch(x, *y, f.wide, f.high));
                    }
                    tile => {
                        if let Some(v) = tile.ratio() {
                            shades[shade(v)].push_str(&outline);
                        }
                    }
                }
            }
        }
        html! {
            @for (i, d) in shades.iter().enumerate().filter(|(_, d)| !d.is_empty()) { path class={ "d" (i) } d=(d) {} }
            @if !void.is_empty() { path class="void" d=(void) {} path class="hatch" d=(lines) {} }
        }
    }

    /// The line on top of the best rows: above it, trees stop paying more. It breaks where a column has no figure.
    fn ceiling(&self, f: &Frame, best: &[Option<usize>]) -> Markup {
        let mut d = String::new();
        let mut before = None;
        for (c, row) in best.iter().enumerate() {
            if let Some(r) = row {
                let (x, y) = (f.left + f.wide * c as f64, f.base - f.high * (*r as f64 + 1.0));
                // Writing to a string does not fail.
                let _ = match before {
                    None => write!(d, "M{} {}H{}", px(x), px(y), px(x + f.wide)),
                    Some(_) => write!(d, "V{}H{}", px(y), px(x + f.wide)),
                };
            }
            before = *row;
        }
        html! { @if !d.is_empty() { path class="ceiling-under" d=(d) {} path class="ceiling" d=(d) {} } }
    }

    /// Names of the columns and both titles.
    fn across(&self, f: &Frame) -> Markup {
        let large = self.size == Size::Large;
        let widest = self.columns.iter().map(|c| text_width(c)).fold(0.0, f64::max);
        let stride = ((widest + 4.0) / f.wide).ceil().max(1.0) as usize;
        let middle = f.left + (f.total.0 - f.left - 2.0) / 2.0;
        html! {
            @for (c, name) in self.columns.iter().enumerate().filter(|(c, _)| c % stride == 0) {
                text class="tick mid" x=(px(f.left + f.wide * (c as f64 + 0.5))) y=(px(f.base + 14.0)) { (name) }
            }
            @if large {
                text class="title mid" x=(px(middle)) y=(px(f.total.1 - 8.0)) { (self.x_label) }
                text class="title mid" transform={ "translate(" (px(f.left - f.names - 12.0)) " " (px((f.ladder_top + f.base) / 2.0)) ") rotate(-90)" } { (self.y_label) }
            }
        }
    }
}

/// Whether row `i` of a small map has room for its name.
fn shown(i: usize, ladder: usize, high: f64) -> bool {
    let stride = (13.0 / high).ceil().max(1.0) as usize;
    i < ladder && i.is_multiple_of(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(value: f64) -> Tile {
        Tile::Ratio { value, note: String::new(), flag: false }
    }

    fn map(rows: &[&[Tile]], size: Size) -> Heat {
        let ladder = rows.iter().enumerate().map(|(i, r)| HeatRow { label: i.to_string(), tiles: r.to_vec() });
        Heat {
            title: String::new(),
            x_label: String::new(),
            columns: ["1", "2"].map(str::to_owned).into(),
            y_label: String::new(),
            ladder: ladder.collect(),
            above: Vec::new(),
            size,
        }
    }

    #[test]
    fn the_ceiling_is_the_best_row_and_of_equals_the_lower() {
        let refused = Tile::Refused("no room".to_owned());
        let m =
            map(&[&[tile(1.0), refused.clone()], &[tile(1.3), refused.clone()], &[tile(1.3), refused]], Size::Large);
        assert_eq!(m.best(), [Some(1), None]);
        let svg = m.draw().unwrap().into_string();
        assert!(svg.contains("class=\"ceiling\"") && svg.matches("class=\"hatch\"").count() == 3, "{svg}");
        assert!(svg.contains(">1.30<"));
    }

    #[test]
    fn nothing_to_show_is_nothing() {
        let m = map(&[&[Tile::Absent, tile(f64::NAN)]], Size::Small);
        assert!(m.draw().is_none());
        assert!(map(&[], Size::Large).draw().is_none());
    }

    #[test]
    fn a_small_map_has_one_path_a_colour() {
        let many: Vec<[Tile; 2]> = (0..40).map(|_| [tile(1.2), tile(1.2)]).collect();
        let rows: Vec<&[Tile]> = many.iter().map(|r| &r[..]).collect();
        let svg = map(&rows, Size::Small).draw().unwrap().into_string();
        assert_eq!(svg.matches("<path").count(), 3, "{svg}");
    }
}
