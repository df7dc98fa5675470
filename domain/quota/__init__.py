"""The quota of an account: who may call now, counted in requests and tokens. Pure: a bank, an ask and a time go in."""
