//! The table of `dev.d/setup.sh`, with lines `GROUP PACKAGE CHECK`.

/// One line of the table.
#[derive(Debug)]
pub struct SetupRow<'a> {
    pub line: usize,
    pub group: &'a str,
    /// Without the `?` of packages that some distributions lack.
    pub package: &'a str,
    /// A program, or the path of a file.
    check: &'a str,
}

impl SetupRow<'_> {
    pub fn is_check(&self, program: &str) -> bool {
        self.check == program
    }
}

/// All lines of the table.
#[derive(Debug)]
pub struct Table<'a> {
    pub rows: Vec<SetupRow<'a>>,
}

impl<'a> Table<'a> {
    pub fn parse(setup: &'a str) -> Self {
        let lines = setup.lines().enumerate().skip_while(|(_, line)| !line.contains("<<'TABLE'")).skip(1);
        let rows = lines.take_while(|(_, line)| *line != "TABLE").filter_map(|(at, line)| {
            let mut words = line.split_whitespace();
            let (group, package, check) = (words.next()?, words.next()?, words.next()?);
            Some(SetupRow { line: at + 1, group, package: package.trim_end_matches('?'), check })
        });
        Self { rows: rows.collect() }
    }
}
