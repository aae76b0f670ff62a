//! The part of Python's pickle that `torch.save` writes, read as data: nothing is imported or
//! called.
//!
//! The format's machine has a stack and a memo. Objects are indices into one arena, so that cycles
//! in hostile files cost nothing; a call (`REDUCE`) becomes a [`Value::Call`] that names its
//! function.

use std::collections::HashMap;

use crate::Error;

/// Number of an object in its arena.
pub(crate) type Id = u32;

/// An object.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    /// None, floats, and all else that names no tensor.
    Other,
    /// An integer of at most 64 bits.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// A tuple, a list or a set.
    Items(Vec<Id>),
    /// A dictionary: keys and values in turn.
    Pairs(Vec<Id>),
    /// A name in a module, both of them texts, such as `torch` and `FloatStorage`.
    Global { module: Id, name: Id },
    /// The result of a function.
    Call(Box<Call>),
    /// Something outside of the pickle: PyTorch's storages.
    Persistent(Id),
}

/// A call, and the state that its result was given after.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: Id,
    pub(crate) arguments: Id,
    pub(crate) state: Vec<Id>,
    /// Keys and values in turn.
    pub(crate) pairs: Vec<Id>,
}

/// All objects of a pickle, and the one that it is.
pub(crate) struct Pickle<'a> {
    /// Objects by number.
    pub(crate) values: Vec<Value<'a>>,
    /// The whole.
    pub(crate) root: Id,
}

/// Memory that the objects of any pickle may take, and that of each byte beyond: a model's take
/// about six.
const LEAST_BUDGET: usize = 16 << 20;
const BUDGET_PER_BYTE: usize = 16;

/// The object that stands for None, floats and the like.
const OTHER: Id = 0;

/// Reads a pickle.
pub(crate) fn read(bytes: &[u8]) -> Result<Pickle<'_>, Error> {
    let mut machine = Machine {
        rest: bytes,
        values: vec![Value::Other],
        small: [OTHER; 256],
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        budget: LEAST_BUDGET + BUDGET_PER_BYTE * bytes.len(),
    };
    while machine.step()? {}
    let root = machine.pop()?;
    Ok(Pickle { values: machine.values, root })
}

impl<'a> Pickle<'a> {
    /// Returns an object.
    pub(crate) fn get(&self, id: Id) -> &Value<'a> {
        self.values.get(id as usize).unwrap_or(&Value::Other)
    }

    /// Returns the module and the name of a global.
    pub(crate) fn global(&self, id: Id) -> Option<(&'a str, &'a str)> {
        let Value::Global { module, name } = *self.get(id) else { return None };
        match (self.get(module), self.get(name)) {
            (Value::Text(module), Value::Text(name)) => Some((module, name)),
            _ => None,
        }
    }
}

fn bad(why: impl Into<String>) -> Error {
    Error::format("PyTorch", why)
}

struct Machine<'a> {
    rest: &'a [u8],
    values: Vec<Value<'a>>,
    /// The whole numbers below 256 that were met.
    small: [Id; 256],
    stack: Vec<Id>,
    marks: Vec<u32>,
    memo: HashMap<u64, Id>,
    /// Bytes of memory that may still be taken.
    budget: usize,
}

impl<'a> Machine<'a> {
    /// Executes an instruction; returns false after the last.
    fn step(&mut self) -> Result<bool, Error> {
        match self.take(1)?[0] {
            b'.' => return Ok(false),
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len() as u32),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            code @ (b'q' | b'r' | b'p' | 0x94) => self.memoise(code)?,
            code @ (b'h' | b'j' | b'g') => self.recall(code)?,
            code @ (b'}' | b']' | b')' | 0x8f | b't' | b'l' | b'd' | 0x85..=0x87 | 0x91) => {
                self.collect(code)?
            }
            code @ (b'a' | b'e' | b's' | b'u' | 0x90) => self.fill(code)?,
            code @ (b'c' | 0x93 | b'R' | 0x81 | b'b' | b'Q') => self.object(code)?,
            code => self.constant(code)?,
        }
        Ok(true)
    }

    /// Pushes a number, a string or another constant.
    fn constant(&mut self, code: u8) -> Result<(), Error> {
        let value = match code {
            b'N' | 0x88 | 0x89 => Value::Other,
            b'G' => self.take(8).map(|_| Value::Other)?,
            b'J' => Value::Int(i64::from(self.number(4)? as u32 as i32)),
            b'K' => return self.small(),
            b'M' => Value::Int(self.number(2)? as i64),
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            b'U' | b'C' => self.skip(1)?,
            b'T' | b'B' => self.skip(4)?,
            0x8e => self.skip(8)?,
            b'I' | b'L' | b'F' | b'S' | b'V' => self.line().map(|_| Value::Other)?,
            code => {
                return Err(bad(format!("its pickle has the instruction {code:#04x}, which is not known")));
            }
        };
        self.push(value)
    }

    /// A whole number of one byte.
    fn small(&mut self) -> Result<(), Error> {
        let number = self.number(1)? as usize;
        if self.small[number] == OTHER {
            self.push(Value::Int(number as i64))?;
            self.small[number] = self.top()?;
        } else {
            self.stack.push(self.small[number]);
        }
        Ok(())
    }

    /// Builds tuples, lists, dictionaries and sets, empty or from the stack.
    fn collect(&mut self, code: u8) -> Result<(), Error> {
        let value = match code {
            b'}' => Value::Pairs(Vec::new()),
            b']' | b')' | 0x8f => Value::Items(Vec::new()),
            b'd' => Value::Pairs(self.since_mark()?),
            0x85..=0x87 => {
                let from =
                    self.stack.len().checked_sub(usize::from(code - 0x84)).ok_or_else(|| bad(EMPTY))?;
                Value::Items(self.stack.split_off(from))
            }
            _ => Value::Items(self.since_mark()?),
        };
        self.push(value)
    }

    /// Moves the top of the stack into the collection below.
    fn fill(&mut self, code: u8) -> Result<(), Error> {
        let new = match code {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.since_mark()?,
        };
        self.spend(8 * new.len())?;
        let below = self.top()?;
        let all = match (&mut self.values[below as usize], code) {
            (Value::Items(items), b'a' | b'e' | 0x90) => items,
            (Value::Pairs(pairs), b's' | b'u') => pairs,
            (Value::Call(call), b's' | b'u') => &mut call.pairs,
            // A list or set that some class made.
            (Value::Call(call), _) => &mut call.state,
            _ => return Err(bad("its pickle fills what is no collection")),
        };
        all.extend(new);
        Ok(())
    }

    /// Handles names, calls and persistent ids.
    fn object(&mut self, code: u8) -> Result<(), Error> {
        let value = match code {
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Text(module))?;
                self.push(Value::Text(name))?;
                let (name, module) = (self.pop()?, self.pop()?);
                Value::Global { module, name }
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (&self.values[module as usize], &self.values[name as usize]) {
                    (Value::Text(_), Value::Text(_)) => Value::Global { module, name },
                    _ => return Err(bad("its pickle names a global by what is no text")),
                }
            }
            b'Q' => Value::Persistent(self.pop()?),
            b'b' => {
                let state = self.pop()?;
                let top = self.top()?;
                self.spend(8)?;
                if let Value::Call(call) = &mut self.values[top as usize] {
                    call.state.push(state);
                }
                return Ok(());
            }
            _ => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                Value::Call(Box::new(Call { function, arguments, state: Vec::new(), pairs: Vec::new() }))
            }
        };
        self.push(value)
    }

    fn memoise(&mut self, code: u8) -> Result<(), Error> {
        let key = match code {
            b'q' => self.number(1)?,
            b'r' => self.number(4)?,
            b'p' => self.line()?.parse().map_err(|_| bad("its memo has no number"))?,
            _ => self.memo.len() as u64,
        };
        let top = self.top()?;
        self.spend(32)?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, code: u8) -> Result<(), Error> {
        let key = match code {
            b'h' => self.number(1)?,
            b'j' => self.number(4)?,
            _ => self.line()?.parse().map_err(|_| bad("its memo has no number"))?,
        };
        let id = *self.memo.get(&key).ok_or_else(|| bad(format!("its memo has no {key}")))?;
        self.stack.push(id);
        Ok(())
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), Error> {
        if matches!(value, Value::Other) {
            self.stack.push(OTHER);
            return Ok(());
        }
        let beside = match &value {
            Value::Items(items) | Value::Pairs(items) if !items.is_empty() => 16 + 4 * items.len(),
            Value::Call(_) => size_of::<Call>() + 16,
            _ => 0,
        };
        self.spend(size_of::<Value<'_>>() + beside)?;
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    /// Counts memory that objects take.
    fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| bad("its pickle has far more objects than that of any model"))?;
        Ok(())
    }

    fn pop(&mut self) -> Result<Id, Error> {
        self.stack.pop().ok_or_else(|| bad(EMPTY))
    }

    fn top(&self) -> Result<Id, Error> {
        self.stack.last().copied().ok_or_else(|| bad(EMPTY))
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, Error> {
        let mark = self.marks.pop().map(|mark| mark as usize).filter(|&mark| mark <= self.stack.len());
        mark.map(|mark| self.stack.split_off(mark)).ok_or_else(|| bad("its pickle lacks a mark"))
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], Error> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let (taken, rest) = split.ok_or_else(|| bad("its pickle ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: u64) -> Result<u64, Error> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)))
    }

    fn long(&mut self, length: u64) -> Result<Value<'a>, Error> {
        let length = self.number(length)?;
        let bytes = self.take(length)?;
        let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        let start = if negative { -1 } else { 0 };
        let value = bytes.iter().rev().fold(start, |all: i64, &byte| all << 8 | i64::from(byte));
        Ok(if length <= 8 { Value::Int(value) } else { Value::Other })
    }

    fn text(&mut self, length: u64) -> Result<Value<'a>, Error> {
        let length = self.number(length)?;
        let text =
            std::str::from_utf8(self.take(length)?).map_err(|_| bad("a text of its pickle is none"))?;
        Ok(Value::Text(text))
    }

    fn skip(&mut self, length: u64) -> Result<Value<'a>, Error> {
        let length = self.number(length)?;
        self.take(length).map(|_| Value::Other)
    }

    fn line(&mut self) -> Result<&'a str, Error> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or_else(|| bad("its pickle ends in a line"))?;
        let line = std::str::from_utf8(self.take(end as u64)?)
            .map_err(|_| bad("a name of its pickle is no text"))?;
        self.take(1)?;
        Ok(line)
    }
}

const EMPTY: &str = "its pickle takes from an empty stack";
