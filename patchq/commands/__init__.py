"""One module a verb, one function each: facts in, a `Report` out; no printing, no exiting."""
