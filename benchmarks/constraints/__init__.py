"""What do constraints cost, are answers valid, and what is jump-forward worth?"""
