"""What an operator sees from outside: logs always, traces and metrics when the standard OTEL variables ask for them."""
